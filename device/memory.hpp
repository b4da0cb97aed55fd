// SPDX-License-Identifier: Apache-2.0
// Memory that peers can map, of the processor or of a GPU, and how a piece of it is described to the backends.
#pragma once

#include <sluice/types.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "device/driver.hpp"
#include "device/reach.hpp"

namespace sluice::device {

/// Memory that other processes can map, by its descriptor or by the driver's names of a GPU's memory. A crash leaves
/// nothing of it behind.
struct Segment {
  GpuExport share;       ///< for host memory: the descriptor alone
  std::uint64_t id = 0;  ///< unique in this process, never used again
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool shared = false;       ///< holds many small allocations and lives as long as the process
  bool sparse = false;       ///< pages are there where they are used: a NIC or a GPU is given the pieces that it uses
  Driver* driver = nullptr;  ///< set for a GPU's memory
  GpuMemory gpu;             ///< if allocated here; empty for the user's
  mutable Reached reached;   ///< by GPUs; host memory only

  ~Segment();
};

/// Returns a segment of this process; null if it was freed.
std::shared_ptr<const Segment> find_segment(std::uint64_t id);

/// A piece of memory. One without a segment is the user's, and no other process can map it.
struct Extent {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  const Segment* segment = nullptr;
  Driver* driver = nullptr;  ///< set for a GPU's memory, which the processor does not touch

  std::size_t offset() const noexcept {
    return segment == nullptr ? 0 : static_cast<std::size_t>(data - segment->data);
  }
};

/// Lets streams of the driver's GPUs use the memory, as long as the result, or the memory's segment, lives.
/// @throws GpuError
Reached reach(Driver& driver, const Extent& memory);

/// An extent, and what keeps its memory.
class Allocation {
 public:
  Allocation() noexcept = default;
  Allocation(const Extent& extent, std::shared_ptr<const void> owner) noexcept
      : extent_(extent), owner_(std::move(owner)) {}

  const Extent& extent() const noexcept { return extent_; }

 private:
  Extent extent_;
  std::shared_ptr<const void> owner_;
};

/// Allocates zeroed memory, aligned to 64 bytes, from 4096 bytes on to a page. `populate`: its pages are mapped at
/// return. Any thread. @throws std::bad_alloc, std::system_error
Allocation allocate(std::size_t bytes, bool populate);

/// Words of peers and their Parking have memory of this size to themselves, at a multiple of it in a segment. Its first
/// line is a base::Parking, which all in it have in common.
inline constexpr std::size_t kWordsBytes = 512 * 1024;
/// Allocates memory for them, like `allocate` with `populate`.
Allocation allocate_words(std::size_t bytes);

/// Allocates zeroed memory of a GPU, aligned to 256 bytes. @throws GpuError
Allocation allocate_on(Driver& driver, int device, std::size_t bytes);

/// Describes memory of the user, and does not own it. Peers can map a GPU's memory if its driver allows that.
Allocation adopt(void* data, std::size_t bytes);

/// A peer's segment, mapped here.
class Mapping {
 public:
  /// Maps host memory, or with a driver a GPU's memory. @throws std::system_error, GpuError
  Mapping(const GpuExport& share, std::size_t bytes, Driver* driver);
  /// For a segment of this process.
  explicit Mapping(std::shared_ptr<const Segment> own);
  ~Mapping();

  std::byte* data() const noexcept { return data_; }
  /// Non-null for a GPU's memory.
  Driver* driver() const noexcept { return driver_; }
  /// True if unmapping waits for a stream of ours, which other streams may hold up.
  bool waits_for_gpu() const noexcept { return gpu_.got == GpuMemory::Got::pooled; }
  /// Lets streams of the driver's GPUs use the memory. Any thread.
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
