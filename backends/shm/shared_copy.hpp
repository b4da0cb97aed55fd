// SPDX-License-Identifier: Apache-2.0
// A copy through bounce memory at which two processes work at the same time: the sender copies pieces in, and a
// receiver that waits copies them out meanwhile. The kernel copies pieces for which there is no room into the target.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "backends/shm/cross_memory.hpp"
#include "backends/transport.hpp"

namespace sluice::backends::shm {

/// In memory that both map, for one slot. All zero at first. The pieces of a put are numbered from the beginning of its
/// bytes: the first `filled` of them go through bounce memory, whose room is used in turn, and the others by the
/// kernel. If there is not room for a piece, the kernel copies all.
class SharedCopy {
 public:
  static constexpr std::size_t kLeastPiece = 16 * 1024;

  /// Bounce memory of a slot, at least `room` bytes. A put uses no more than these.
  struct Bounce {
    std::byte* data;
    std::size_t room;
  };

  /// The sender's part. Returns once all bytes are in the target or in the bounce memory, whether the receiver copies
  /// or not; or false: the watch has failed. `wake`: where the receiver may sleep.
  bool put(std::uint64_t epoch, Range part, const std::byte* source, Bounce bounce, const CrossMemory& target,
           device::Watch& watch, base::Parking& wake) noexcept;
  /// The receiver's part: copies the pieces of `epoch` that have been filled. Returns how many. `target`: of the slot.
  std::size_t take(std::uint64_t epoch, std::byte* target, const std::byte* bounce, std::size_t slot_bytes) noexcept;

 private:
  static constexpr std::size_t kLine = 64;

  struct Layout {
    std::uint64_t offset, bytes;  // of the part
    std::uint64_t piece;          // bytes
    std::uint64_t ring;           // pieces for which there is room
    std::uint64_t begin;          // `filled_` of all puts before
  };

  // The sender's line.
  alignas(kLine) std::atomic<std::uint64_t> epoch_{0};  // whose bytes are being copied; stored after the rest
  Layout layout_{};
  std::atomic<std::uint64_t> filled_{0};  // pieces, of all puts
  // The receiver's.
  alignas(kLine) std::atomic<std::uint64_t> taken_{0};  // pieces that were copied out, of all puts
};

}  // namespace sluice::backends::shm
