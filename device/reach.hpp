// SPDX-License-Identifier: Apache-2.0
// Host memory that the streams of GPUs use. The driver is given whole pages, each once for all pieces of memory that
// lie in it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "device/driver.hpp"

namespace sluice::device {

/// Bytes of a page of host memory.
inline constexpr std::size_t kPage = 4096;

/// Owners of pages that a driver was given. The driver gives a page up with its last owner.
using Reached = std::vector<std::shared_ptr<const void>>;

/// The memory that was at these addresses before was freed, but its driver has not given up the pages yet, which it
/// cannot while a stream may be parked. The driver uses the old pages, whatever the processor finds there now.
struct StalePages : GpuError {
  using GpuError::GpuError;
};

/// Any thread. @throws StalePages, GpuError
Reached reach(Driver& driver, const void* data, std::size_t bytes);

/// True if a driver may use other pages there than the processor does.
bool stale(const void* data, std::size_t bytes);

/// Like mmap, for reading and writing, at addresses that are not stale. MAP_FAILED: errno tells the reason.
void* map_fresh(std::size_t bytes, int flags, int descriptor);

/// Gives the driver pages of words that it keeps for ever.
void reach_for_ever(Driver& driver, void* page, std::size_t bytes);

/// True if a driver was given any memory in more than one piece.
bool any_in_parts() noexcept;
void for_each_given_part(const void* to, const void* from, std::size_t bytes,
                         const std::function<void(std::size_t, std::size_t)>& part);

/// Calls `part(offset, bytes)` for each part of a copy that a driver can do at once: on both sides, a part lies in one
/// piece of memory that a driver was given.
template <class Part>
void for_each_part(const void* to, const void* from, std::size_t bytes, Part part) {
  if (!any_in_parts()) return part(std::size_t{0}, bytes);
  for_each_given_part(to, from, bytes, part);
}

}  // namespace sluice::device
