// SPDX-License-Identifier: Apache-2.0
// Host memory that the streams of GPUs use. Whole pages are given to the driver, once, however many pieces of memory
// lie in them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "device/driver.hpp"

namespace sluice::device {

/// Bytes of a page of host memory.
inline constexpr std::size_t kPage = 4096;

/// Pages that a driver was given; taken back with the last owner.
using Reached = std::vector<std::shared_ptr<const void>>;

/// The memory that was at these addresses before was freed, and its pages are not taken back yet: while a stream may be
/// parked they cannot be. The driver uses them, whatever the processor finds there now.
class StalePages : public GpuError {
 public:
  using GpuError::GpuError;
};

/// Any thread. @throws StalePages, GpuError
Reached reach(Driver& driver, const void* data, std::size_t bytes);

/// Whether a driver may use other pages there than the processor does.
bool stale(const void* data, std::size_t bytes);

/// As mmap, for reading and writing, where nothing is stale. MAP_FAILED: errno says why.
void* map_fresh(std::size_t bytes, int flags, int descriptor);

/// For good: pages of words.
void reach_for_ever(Driver& driver, void* page, std::size_t bytes);

/// Calls `part(offset, bytes)` for the parts of [data, data + bytes) that a driver was given in one piece each: no copy
/// may go beyond one.
void for_each_part(const void* data, std::size_t bytes, const std::function<void(std::size_t, std::size_t)>& part);

/// Whether there is any memory that is given in more than one piece.
bool any_in_parts() noexcept;

}  // namespace sluice::device
