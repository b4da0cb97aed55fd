// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/export.hpp>
#include <sluice/types.hpp>

#include <cstddef>
#include <memory>
#include <span>

namespace sluice {

namespace detail {
struct Block;
struct SliceAccess;
}  // namespace detail

/// A piece of pinned memory. Shares ownership of it: memory that Sluice allocated lives as long as a slice of it, or a
/// channel. Only the slots that a channel or a plan gives in program order are lent: they are valid as long as the
/// channel is open. Copies are cheap; any thread may use them.
class SLUICE_EXPORT Slice {
 public:
  /// Empty: no memory, 0 bytes.
  Slice() noexcept = default;

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

  /// The `length` bytes from `offset`.
  /// @throws Error{Code::bad_argument} if they do not lie inside this slice.
  Slice slice(std::size_t offset, std::size_t length) const;

  /// The same bytes as elements of T; a rest smaller than one T is left out. The slice must outlive the span.
  template <class T>
  std::span<T> as() const& {
    return {reinterpret_cast<T*>(data()), bytes() / sizeof(T)};
  }
  template <class T>
  std::span<T> as() const&& = delete;

 private:
  friend struct detail::SliceAccess;
  Slice(std::shared_ptr<const detail::Block> block, std::byte* data, std::size_t bytes) noexcept
      : block_(std::move(block)), data_(data), bytes_(bytes) {}

  std::shared_ptr<const detail::Block> block_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The user's memory, pinned: what `Context::region` returns. The memory stays the user's and must outlive every
/// channel on it; `close` of such a channel says when it may be freed.
class SLUICE_EXPORT Region {
 public:
  /// Empty.
  Region() noexcept = default;

  std::byte* data() const noexcept;
  std::size_t bytes() const noexcept;

  /// The `length` bytes from `offset`.
  /// @throws Error{Code::bad_argument} if they do not lie inside the region.
  Slice slice(std::size_t offset, std::size_t length) const;
  Slice all() const;

 private:
  friend class Context;
  explicit Region(std::shared_ptr<const detail::Block> block) noexcept : block_(std::move(block)) {}

  std::shared_ptr<const detail::Block> block_;

  friend class Memory;
};

/// Memory that Sluice allocated: pinned, zeroed, and mappable by peers on this machine. Freed with its last slice or
/// channel.
class SLUICE_EXPORT Memory : public Region {
 public:
  /// Empty.
  Memory() noexcept = default;

 private:
  friend class Context;
  using Region::Region;
};

}  // namespace sluice
