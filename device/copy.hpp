// SPDX-License-Identifier: Apache-2.0
// The copy of a put. Inline, because one of a few bytes takes less than a call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>
#include <limits>

#include "device/gpu.hpp"

namespace sluice::device {

/// Copies of at least so many bytes go past the cache.
inline std::atomic<std::size_t> nontemporal_min{std::numeric_limits<std::size_t>::max()};

/// On a GPU's stream, copies of at most so many bytes are done by a kernel, which writes their words too. The setting
/// of the process.
inline std::atomic<std::size_t> kernel_put_max{0};

/// Complete when it returns: what is stored later is seen later.
void copy_past_cache(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

/// Now, by the driver: one of the two is memory of a GPU. False: it refused, which has failed the watch.
bool copy_now(Watch& watch, Driver& gpus, std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

/// Copies in the lane's order, choosing the way by size. Not for overlapping memory. `kernel_max`: on a GPU's stream,
/// by a kernel up to this size.
inline void copy(Lane lane, std::byte* to, const std::byte* from, std::size_t bytes, std::size_t kernel_max = 0) {
  if (lane.gpu != nullptr) {
    const bool by_kernel = bytes != 0 && bytes <= kernel_max;
    return by_kernel ? lane.gpu->copy_by_kernel(to, from, bytes) : lane.gpu->copy(to, from, bytes);
  }
  if (bytes >= nontemporal_min.load(std::memory_order_relaxed)) [[unlikely]]
    return copy_past_cache(to, from, bytes);
  std::memcpy(to, from, bytes);
}

/// The same. `gpus`: the driver of the GPU whose memory either is. False: it refused, which has failed the watch.
inline bool copy(Lane lane, Watch& watch, std::byte* to, const std::byte* from, std::size_t bytes, Driver* gpus,
                 std::size_t kernel_max = 0) {
  if (lane.gpu == nullptr && gpus != nullptr) [[unlikely]]
    return copy_now(watch, *gpus, to, from, bytes);
  copy(lane, to, from, bytes, kernel_max);
  return true;
}

}  // namespace sluice::device
