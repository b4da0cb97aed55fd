// SPDX-License-Identifier: Apache-2.0
// The bytes of a message in a buffer of the program.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

namespace sluice::stream_mpi {

/// A buffer of `count` elements of a datatype. It does not need the datatype any more once it is made.
class Layout {
 public:
  Layout() = default;
  /// @throws Refused for a datatype that MPI does not describe, and for 2^63 bytes or more
  Layout(const void* buffer, MPI_Count count, MPI_Datatype type);

  std::size_t bytes() const noexcept { return bytes_; }
  /// True if the bytes follow each other without gaps, in their order.
  bool contiguous() const noexcept { return pieces_.size() <= 1; }
  /// The first byte, if they are contiguous.
  std::byte* data() const noexcept { return pieces_.empty() ? nullptr : pieces_.front().at; }
  /// True if `is` holds for the first byte of some piece.
  bool any_begins_in(bool (*is)(const void* at)) const {
    return std::ranges::any_of(pieces_, [is](const Piece& piece) { return is(piece.at); });
  }

  using Copy = void(void* to, const void* from, std::size_t bytes);
  static void copy_on_host(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

  /// Copies all bytes to `packed`, piece by piece.
  void pack(std::byte* packed, Copy* copy = &copy_on_host) const;
  /// Copies the first `bytes` bytes from `packed`.
  void unpack(const std::byte* packed, std::size_t bytes, Copy* copy = &copy_on_host) const;

 private:
  struct Piece {
    std::byte* at;
    std::size_t bytes;
  };
  std::vector<Piece> pieces_;
  std::size_t bytes_ = 0;
};

}  // namespace sluice::stream_mpi
