// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/export.hpp>
#include <sluice/types.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace sluice {

class Batch;

namespace detail {
struct Block;
struct SliceAccess;
/// The address of a slot, which SLUICE_CHECK=1 has marked with its epoch.
SLUICE_EXPORT std::byte* data_of_marked(const std::byte* marked) noexcept;
}  // namespace detail

/// A piece of a Region or a Memory. Copies are cheap; any thread may use them.
///
/// A slice of a Memory keeps that memory allocated. There is one exception: the slots that `acquire`, `wait` and
/// `Plan::slot` return in program order keep nothing, and are valid only while their channel is open. A slice of a
/// Region keeps it pinned, but the memory itself is the program's.
class SLUICE_EXPORT Slice {
 public:
  /// Empty: no memory, 0 bytes.
  Slice() noexcept = default;

  /// The address of the first byte; nullptr if empty. With SLUICE_CHECK=1 the channel fails if the slice is a slot of a
  /// Receiver, or a piece of one, that was released.
  std::byte* data() const noexcept {
    if (reinterpret_cast<std::intptr_t>(data_) < 0) [[unlikely]]
      return detail::data_of_marked(data_);
    return data_;
  }
  std::size_t bytes() const noexcept { return bytes_; }

  /// The `length` bytes from `offset`.
  /// @throws Error{Code::bad_argument} if they do not lie inside this slice.
  Slice slice(std::size_t offset, std::size_t length) const;

  /// The bytes of this slice as elements of T; the last bytes that do not fill a T are left out. The address must be
  /// aligned for T. The slice must outlive the span.
  template <class T>
  std::span<T> as() const& {
    return {reinterpret_cast<T*>(data()), bytes() / sizeof(T)};
  }
  template <class T>
  std::span<T> as() const&& = delete;

 private:
  friend class Batch;
  friend struct detail::SliceAccess;
  Slice(std::shared_ptr<const detail::Block> block, std::byte* data, std::size_t bytes) noexcept
      : block_(std::move(block)), data_(data), bytes_(bytes) {}

  std::shared_ptr<const detail::Block> block_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The program's own memory, pinned by `Context::region`. It stays the program's, which frees it after every channel on
/// it was closed: `close` returns when nothing uses the memory any more. Or a peer's memory, by `Target::mapped`.
/// Copies are cheap; any thread may use them.
class SLUICE_EXPORT Region {
 public:
  /// Empty: no memory, 0 bytes.
  Region() noexcept = default;

  /// The address of the first byte; nullptr if empty.
  std::byte* data() const noexcept;
  std::size_t bytes() const noexcept;

  /// The `length` bytes from `offset`.
  /// @throws Error{Code::bad_argument} if they do not lie inside the region.
  Slice slice(std::size_t offset, std::size_t length) const;
  /// All bytes.
  Slice all() const;

 private:
  friend class Context;
  friend class Target;
  explicit Region(std::shared_ptr<const detail::Block> block) noexcept : block_(std::move(block)) {}

  std::shared_ptr<const detail::Block> block_;
};

/// Memory that `Context::allocate` made: pinned, zeroed, and mappable by peers on this machine. It is freed with its
/// last Memory, slice or channel.
class SLUICE_EXPORT Memory : public Region {
  using Region::Region;
};

}  // namespace sluice
