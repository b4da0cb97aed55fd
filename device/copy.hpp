// SPDX-License-Identifier: Apache-2.0
// The copy of a put, in the order of a lane.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/copy.hpp"
#include "device/gpu.hpp"

namespace sluice::device {

/// On a GPU's stream, a kernel does copies of at most this many bytes, and writes their words too. The setting of the
/// process.
inline std::atomic<std::size_t> kernel_put_max{0};

/// Copies now, by the driver: one side is a GPU's memory. Returns false if the driver refused, which has failed the
/// watch.
bool copy_now(Watch& watch, Driver& gpus, std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

/// Copies in the lane's order. Not for overlapping memory. `kernel_max`: on a GPU's stream,
/// by a kernel up to this size.
inline void copy(Lane lane, std::byte* to, const std::byte* from, std::size_t bytes, std::size_t kernel_max = 0) {
  if (lane.gpu != nullptr) {
    const bool by_kernel = bytes != 0 && bytes <= kernel_max;
    return by_kernel ? lane.gpu->copy_by_kernel(to, from, bytes) : lane.gpu->copy(to, from, bytes);
  }
  base::copy_bytes(to, from, bytes);
}

/// Copies in the lane's order. `gpus`: driver of the side that is a GPU's memory, if any. Returns false if the driver
/// refused, which has failed the watch.
inline bool copy(Lane lane, Watch& watch, std::byte* to, const std::byte* from, std::size_t bytes, Driver* gpus,
                 std::size_t kernel_max = 0) {
  if (lane.gpu == nullptr && gpus != nullptr) [[unlikely]]
    return copy_now(watch, *gpus, to, from, bytes);
  copy(lane, to, from, bytes, kernel_max);
  return true;
}

}  // namespace sluice::device
