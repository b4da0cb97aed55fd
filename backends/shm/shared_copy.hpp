// SPDX-License-Identifier: Apache-2.0
// A copy by the kernel that two processes share: the sender copies pieces from the end of the bytes, and a receiver
// that waits for them copies pieces from the beginning.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "backends/shm/cross_memory.hpp"
#include "backends/transport.hpp"

namespace sluice::backends::shm {

/// In memory that both map, for one slot. All zero at first.
class alignas(64) SharedCopy {
 public:
  /// The sender's part: returns once all bytes are in the target, or false: the watch has failed. It copies alone if
  /// the receiver does not wait, and waits only for a piece that the receiver is copying. `wake`: where the receiver
  /// may sleep.
  bool put(std::uint64_t epoch, Range part, const std::byte* source, const CrossMemory& target, device::Watch& watch,
           base::Parking& wake) noexcept;
  /// The receiver's: copies pieces as long as there are any. `target`: of the slot. On an error fails the watch.
  /// Returns how many it has copied.
  std::size_t help(std::uint64_t epoch, pid_t sender, std::byte* target, std::size_t slot_bytes,
                   device::Watch& watch) noexcept;

 private:
  /// Pieces that were claimed: by the receiver in the lower half, by the sender in the upper one. Together they may be
  /// more than there are.
  static constexpr std::uint64_t kOfSender = std::uint64_t{1} << 32U;

  static std::size_t piece_bytes(std::size_t bytes) noexcept;
  /// Claims the next piece for a side, counted from the end for the sender. Returns nothing once all are claimed.
  std::optional<std::size_t> claim(std::uint64_t side, std::size_t pieces) noexcept;

  std::atomic<std::uint64_t> epoch_{0};  // whose bytes are being copied; stored last
  std::uint64_t source_ = 0;             // an address in the sender
  std::uint64_t offset_ = 0;
  std::uint64_t bytes_ = 0;
  std::atomic<std::uint64_t> claims_{0};
  std::atomic<std::uint64_t> copied_{0};  // pieces of the receiver
};
static_assert(sizeof(SharedCopy) == 64);

}  // namespace sluice::backends::shm
