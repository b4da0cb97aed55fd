// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/export.hpp>
#include <sluice/memory.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace sluice {

namespace detail {
/// The address of a slot, marked with its epoch (SLUICE_CHECK=1).
SLUICE_EXPORT std::byte* marked_data(std::byte* data, std::uint64_t epoch) noexcept;
}  // namespace detail

/// Slots of consecutive epochs of one channel, the oldest first. A loop `for (Slice slot : batch)` visits them.
///
/// A batch keeps what one slot of the same call would (see Slice). Its slices keep nothing, so that a loop over small
/// slots counts no owners: they are valid while the batch is, or, in program order, while the channel is open. Copies
/// are cheap; any thread may use them.
class SLUICE_EXPORT Batch {
 public:
  class Iterator {
   public:
    Slice operator*() const noexcept { return (*batch_)[index_]; }
    Iterator& operator++() noexcept {
      ++index_;
      return *this;
    }
    bool operator==(const Iterator& other) const noexcept { return index_ == other.index_; }

   private:
    friend class Batch;
    Iterator(const Batch* batch, std::size_t index) noexcept : batch_(batch), index_(index) {}

    const Batch* batch_;
    std::size_t index_;
  };

  /// Empty: no slots.
  Batch() noexcept = default;

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  /// The epoch of the first slot; for an empty batch, the epoch that the next call begins with.
  std::uint64_t first() const noexcept { return first_; }
  /// The slot of epoch `first() + i`, where `i` is less than `size()`.
  Slice operator[](std::size_t i) const noexcept {
    const std::size_t slot = begin_ + i < depth_ ? begin_ + i : begin_ + i - depth_;
    std::byte* data = slots_ + slot * slot_bytes_;
    if (marked_) [[unlikely]]
      data = detail::marked_data(data, first_ + i);
    return {std::shared_ptr<const detail::Block>(std::shared_ptr<const void>(), block_.get()), data, slot_bytes_};
  }
  Iterator begin() const noexcept { return {this, 0}; }
  Iterator end() const noexcept { return {this, size_}; }

 private:
  friend struct detail::SliceAccess;

  std::shared_ptr<const detail::Block> block_;
  std::byte* slots_ = nullptr;
  std::size_t slot_bytes_ = 0;
  std::size_t size_ = 0;
  std::uint64_t first_ = 0;
  std::uint32_t depth_ = 0;
  std::uint32_t begin_ = 0;  // the slot of `first_`
  bool marked_ = false;
};

}  // namespace sluice
