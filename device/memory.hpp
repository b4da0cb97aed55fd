// SPDX-License-Identifier: Apache-2.0
// Memory that peers can map, of the processor or of a GPU, and how a piece of it is described to the backends.
#pragma once

#include <sluice/types.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "device/driver.hpp"
#include "device/reach.hpp"

namespace sluice::device {

/// Memory that other processes can map: whoever is given its descriptor, or what the driver calls a GPU's. Nothing of
/// it is left behind by a crash.
struct Segment {
  GpuExport share;       ///< of the processor's memory: the descriptor alone
  std::uint64_t id = 0;  ///< unique in this process, never used again
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool shared = false;       ///< holds many small allocations and lives as long as the process
  Driver* driver = nullptr;  ///< a GPU's memory
  GpuMemory gpu;             ///< allocated here; of the user's: nothing
  mutable Reached reached;   ///< by GPUs, of the processor's memory

  Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();
};

/// A segment of this process: null if it is gone.
std::shared_ptr<const Segment> find_segment(std::uint64_t id);

/// A piece of memory. Without a segment it is the user's own, and no other process can map it.
struct Extent {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  const Segment* segment = nullptr;
  Driver* driver = nullptr;  ///< a GPU's memory, which the processor does not touch

  std::size_t offset() const noexcept {
    return segment == nullptr ? 0 : static_cast<std::size_t>(data - segment->data);
  }
};

/// From now on streams of the driver's GPUs use it too: as long as what is returned, or its segment, is there.
/// @throws GpuError
Reached reach(Driver& driver, const Extent& memory);

/// Owns an extent in a segment.
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
  friend Allocation allocate_on(Driver& driver, int device, std::size_t bytes);
  friend Allocation adopt(void* data, std::size_t bytes);
  void swap(Allocation& other) noexcept {
    std::swap(extent_, other.extent_);
    std::swap(segment_, other.segment_);
    std::swap(give_back_, other.give_back_);
  }

  Extent extent_;
  std::shared_ptr<Segment> segment_;
  std::function<void(const Extent&)> give_back_;  // of what shares its segment
};

/// Zeroed memory, aligned to 64 bytes, to a page from 4096 bytes on. `populate`: its pages are there and mapped at
/// return. Any thread. @throws std::bad_alloc, std::system_error
Allocation allocate(std::size_t bytes, bool populate);

/// The same of a GPU's memory, aligned to 256 bytes. @throws GpuError
Allocation allocate_on(Driver& driver, int device, std::size_t bytes);

/// The user's memory, which stays the user's: a GPU's can be mapped by peers if its driver says so.
Allocation adopt(void* data, std::size_t bytes);

/// A peer's segment, mapped here.
class Mapping {
 public:
  /// Of the processor's memory; with a driver, of a GPU's. @throws std::system_error, GpuError
  Mapping(const GpuExport& share, std::size_t bytes, Driver* driver);
  /// A segment of this very process.
  explicit Mapping(std::shared_ptr<const Segment> own);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const noexcept { return data_; }
  /// Non-null: a GPU's memory.
  Driver* driver() const noexcept { return driver_; }
  /// To let go of it is to wait for a stream of ours, which others may hold up.
  bool waits_for_gpu() const noexcept { return gpu_.got == GpuMemory::Got::pooled; }
  /// From now on streams of the driver's GPUs use it too. Any thread.
  void reach_from(Driver& driver);

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Driver* driver_ = nullptr;
  GpuMemory gpu_;
  std::shared_ptr<const Segment> own_;
  std::mutex mutex_;
  Reached reached_;
};

}  // namespace sluice::device
