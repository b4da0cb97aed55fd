// SPDX-License-Identifier: Apache-2.0
// A copy between two processes at which both work at the same time. How fast each way is depends on the processor, and
// on where the two cores are:
// * through bounce memory: the sender copies pieces in, by its cache or past it, and a receiver that waits copies them
//   out meanwhile. Pieces for which there is no room are copied into the target by the kernel;
// * by the kernel alone: the sender copies pieces from the beginning into the target, and a receiver that waits copies
//   pieces from the end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "backends/shm/cross_memory.hpp"
#include "backends/shm/faster_way.hpp"
#include "backends/transport.hpp"

namespace sluice::backends::shm {

/// In memory that both map, for one slot. All zero at first.
class SharedCopy {
 public:
  static constexpr std::size_t kLeastBytes = 2 * 1024;   ///< of a put: a line more takes longer than a copy of fewer
  static constexpr std::size_t kLeastOfCall = 4 * 1024;  ///< that the kernel copies: a call takes longer for fewer
  static constexpr std::size_t kLeastPiece = 16 * 1024;  ///< in bounce memory

  /// Bounce memory of a slot, at least `room` bytes. A put uses no more than these.
  struct Bounce {
    std::byte* data;
    std::size_t room;
  };
  /// Memory that a put uses. Without a process in `target` the kernel copies nothing.
  struct Places {
    const std::byte* source;
    Bounce bounce;
    CrossMemory target;
  };

  /// A put through bounce memory, as the sender knows it: not when the receiver has all. Times in ns.
  struct Timed {
    std::uint64_t epoch = 0;  ///< 0: there is none
    std::uint64_t bytes = 0;
    Way way{};
    std::int64_t begin = 0, end = 0;
  };
  /// The way that was chosen, and the places for the time that it takes.
  struct Choice {
    Way way;  ///< if there is room for a piece in bounce memory; else it goes by the kernel
    FasterWay& ways;
    Timed& timed;  ///< of the slot
  };

  /// The sender's part. Returns once all bytes are in the target or in the bounce memory, whether the receiver copies
  /// or not; or false: the watch has failed. Waits only for a piece that the receiver is copying from the source.
  /// `wake`: where the receiver may sleep.
  bool put(device::Lane lane, std::uint64_t epoch, Range part, const Places& places, Choice choice,
           device::Watch& watch, base::Parking& wake) noexcept;
  /// The receiver's part: copies pieces of `epoch` as long as there are any. Returns how many. `target`: of the slot.
  /// `sender`: 0: the kernel does not let us copy from it.
  std::size_t take(std::uint64_t epoch, std::byte* target, const std::byte* bounce, std::size_t slot_bytes,
                   pid_t sender) noexcept;

 private:
  static constexpr std::size_t kLine = 64;
  /// In `claims_` the receiver counts in the lower half, the sender in the upper one.
  static constexpr std::uint64_t kOfReceiver = 1;
  static constexpr std::uint64_t kOfSender = std::uint64_t{1} << 32U;

  struct Layout {
    std::uint64_t offset, bytes;  // of the part
    std::uint64_t piece;          // bytes
    std::uint64_t ring;           // pieces for which there is room
    std::uint64_t begin;          // `filled_` of all puts before
    std::uint64_t source;         // by the kernel: an address in the sender; else 0
  };

  bool put_through_bounce(std::uint64_t epoch, Range part, const Places& places, Choice choice, device::Watch& watch,
                          base::Parking& wake) noexcept;
  bool put_by_kernel(device::Lane lane, std::uint64_t epoch, Range part, const Places& places, FasterWay& ways,
                     device::Watch& watch, base::Parking& wake) noexcept;
  std::size_t take_by_kernel(const Layout& layout, std::byte* target, std::size_t slot_bytes, pid_t sender) noexcept;
  void learn(const Timed& timed, FasterWay& ways) const noexcept;
  bool claim(std::uint64_t side, std::size_t pieces) noexcept;
  void publish(std::uint64_t epoch, const Layout& layout) noexcept;

  // The sender's line.
  alignas(kLine) std::atomic<std::uint64_t> epoch_{0};  // whose bytes are being copied; stored after the rest
  Layout layout_{};
  std::atomic<std::uint64_t> filled_{0};  // pieces in bounce memory, of all puts
  // The receiver's.
  alignas(kLine) std::atomic<std::uint64_t> taken_{0};  // pieces that were copied out, of all puts
  std::atomic<std::uint64_t> out_epoch_{0};             // the last epoch of which it copied a piece out
  std::atomic<std::int64_t> out_begin_{0};              // when it began with that, in ns
  std::atomic<std::int64_t> out_end_{0};
  std::atomic<std::uint32_t> refused_{0};  // 1: the kernel did not let it copy a piece
  // Both write this line.
  alignas(kLine) std::atomic<std::uint64_t> claims_{0};  // pieces by the kernel, of this put
  base::Word copied_;             // pieces that the receiver has copied by the kernel, of all puts
  base::Parking copied_parking_;  // a line of its own
};

}  // namespace sluice::backends::shm
