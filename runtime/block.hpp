// SPDX-License-Identifier: Apache-2.0
// The memory that slices share.
#pragma once

#include <sluice/batch.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/transport.hpp"

namespace sluice::detail {

/// Pinned memory: the user's, or allocated by us.
struct Block : std::enable_shared_from_this<Block> {
  device::Allocation allocation;  ///< empty for the user's memory
  device::Extent extent;
  Space space = Space::host;          ///< as the user chose
  bool gpus_here = false;             ///< at that time, unless the memory is the host's
  std::shared_ptr<const void> world;  ///< the transports that pinned it; outlives the pins
  std::vector<std::shared_ptr<const void>> pins;
  Rank rank = -1;

  /// Lets streams of the driver's GPUs use the memory as long as this lives. Any thread. @throws device::GpuError
  void reach_from(device::Driver& driver) const {
    const std::lock_guard lock(mutex_);
    if (reached_.empty()) reached_ = device::reach(driver, extent);
  }

 private:
  mutable std::mutex mutex_;
  mutable device::Reached reached_;  // the user's memory of the host; for other memory nothing is kept here
};

struct SliceAccess {
  static Slice make(std::shared_ptr<const Block> block, std::byte* data, std::size_t bytes) {
    return {std::move(block), data, bytes};
  }
  /// A piece of the same memory that does not own it.
  static Slice lend(const Slice& of, std::byte* data, std::size_t bytes) noexcept {
    return {{std::shared_ptr<const void>(), of.block_.get()}, data, bytes};
  }
  /// With SLUICE_CHECK: `Slice::data` looks whether the epoch was released.
  static Slice mark(Slice slot, std::uint64_t epoch) noexcept;
  /// Makes a lent slice own its memory. It bears no mark.
  static Slice own(Slice lent) {
    lent.data_ = lent.data();
    if (lent.block_ != nullptr) lent.block_ = lent.block_->shared_from_this();
    return lent;
  }
  /// `size` slots of `slots`, of which the first is that of `epoch`; `owned`: the batch keeps the memory. `marked`: its
  /// slices bear marks.
  static Batch batch(const Slice& memory, const backends::Slots& slots, std::uint64_t epoch, std::size_t size,
                     bool owned, bool marked) noexcept {
    Batch batch;
    batch.block_ = owned ? memory.block_ : lend(memory, nullptr, 0).block_;
    batch.slots_ = slots.memory.data;
    batch.slot_bytes_ = slots.slot_bytes;
    batch.size_ = size;
    batch.first_ = epoch;
    batch.depth_ = static_cast<std::uint32_t>(slots.depth);
    batch.begin_ = static_cast<std::uint32_t>(slots.index(epoch));
    batch.marked_ = marked;
    return batch;
  }
  static const std::shared_ptr<const Block>& block(const Slice& slice) noexcept { return slice.block_; }
};

}  // namespace sluice::detail
