// SPDX-License-Identifier: Apache-2.0
#include "device/copy.hpp"

#include <algorithm>
#include <cstring>

#include "device/memory.hpp"
#include "device/reach.hpp"

namespace sluice::device {

namespace {

/// Copies through memory of ours, because the processor's side is stale: the driver would use other pages there.
void copy_now_through_ours(Driver& gpus, std::byte* to, const std::byte* from, std::size_t bytes, bool to_gpu) {
  constexpr std::size_t kAtOnce = 64 * 1024;
  const Allocation allocation = allocate(std::min(bytes, kAtOnce), false);
  std::byte* const ours = allocation.extent().data;
  for (std::size_t at = 0; at < bytes; at += kAtOnce) {
    const std::size_t some = std::min(bytes - at, kAtOnce);
    if (to_gpu) std::memcpy(ours, from + at, some);
    gpus.copy_now(to_gpu ? to + at : ours, to_gpu ? ours : from + at, some);
    if (!to_gpu) std::memcpy(to + at, ours, some);
  }
}

}  // namespace

bool copy_now(Watch& watch, Driver& gpus, std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  try {
    const bool from_stale = stale(from, bytes);
    if (from_stale || stale(to, bytes)) {
      copy_now_through_ours(gpus, to, from, bytes, from_stale);
    } else {
      for_each_part(to, from, bytes,
                    [&](std::size_t at, std::size_t some) { gpus.copy_now(to + at, from + at, some); });
    }
    return true;
  } catch (const std::exception& reason) {  // memory of ours may lack too
    watch.fail(Code::transport, reason.what());
    return false;
  }
}

}  // namespace sluice::device
