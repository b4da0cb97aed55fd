// SPDX-License-Identifier: Apache-2.0
#include "device/copy.hpp"

#include <algorithm>
#include <cstring>

#include "device/copy_anywhere.hpp"
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

void copy_by_driver(Driver& gpus, std::byte* to, const std::byte* from, std::size_t bytes) {
  const bool from_stale = stale(from, bytes);
  if (from_stale || stale(to, bytes)) {
    copy_now_through_ours(gpus, to, from, bytes, from_stale);
  } else {
    for_each_part(to, from, bytes, [&](std::size_t at, std::size_t some) { gpus.copy_now(to + at, from + at, some); });
  }
}

/// Null: the address is in no GPU's memory.
Driver* driver_of(const void* at) {
  for (Driver* const driver : drivers_in_use())
    if (driver->find(at)) return driver;
  return nullptr;
}

}  // namespace

bool in_gpu_memory(const void* at) { return driver_of(at) != nullptr; }

void copy_anywhere(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  Driver* gpus = driver_of(to);
  if (gpus == nullptr) gpus = driver_of(from);
  if (gpus == nullptr) {
    std::memcpy(to, from, bytes);
    return;
  }
  copy_by_driver(*gpus, static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
}

bool copy_now(Watch& watch, Driver& gpus, std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  try {
    copy_by_driver(gpus, to, from, bytes);
    return true;
  } catch (const std::exception& reason) {  // memory of ours may lack too
    watch.fail(Code::transport, reason.what());
    return false;
  }
}

}  // namespace sluice::device
