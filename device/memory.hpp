// SPDX-License-Identifier: Apache-2.0
// Memory that peers can map, and how a piece of memory is described to the backends.
#pragma once

#include <sluice/types.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/fd.hpp"

namespace sluice::device {

/// Memory without a name behind a descriptor: whoever is given the descriptor can map it, and nothing is left behind by
/// a crash.
struct Segment {
  base::Fd fd;
  std::uint64_t id = 0;  ///< unique in this process, never used again
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool shared = false;  ///< holds many small allocations and lives as long as the process

  Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();
};

/// A piece of memory. Without a segment it is the user's own.
struct Extent {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  const Segment* segment = nullptr;

  std::size_t offset() const noexcept {
    return segment == nullptr ? 0 : static_cast<std::size_t>(data - segment->data);
  }
};

/// Owns an extent of host memory in a segment.
class Allocation {
 public:
  Allocation() noexcept = default;
  Allocation(Allocation&& other) noexcept { swap(other); }
  Allocation& operator=(Allocation&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Allocation();

  const Extent& extent() const noexcept { return extent_; }

 private:
  friend Allocation allocate(std::size_t bytes, bool populate);
  void swap(Allocation& other) noexcept {
    std::swap(extent_, other.extent_);
    std::swap(segment_, other.segment_);
  }

  Extent extent_;
  std::shared_ptr<Segment> segment_;
};

/// Zeroed memory, aligned to 64 bytes, to a page from 4096 bytes on. `populate`: its pages are there and mapped at
/// return. Any thread. @throws std::bad_alloc, std::system_error
Allocation allocate(std::size_t bytes, bool populate);

/// A peer's segment, mapped here.
class Mapping {
 public:
  /// @throws std::system_error
  Mapping(const base::Fd& fd, std::size_t bytes);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

}  // namespace sluice::device
