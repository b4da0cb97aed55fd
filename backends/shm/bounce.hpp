// SPDX-License-Identifier: Apache-2.0
// Into memory that the sender cannot map: bytes go through slots of ours that it can, or by the kernel's cross-memory
// copy.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "backends/put.hpp"
#include "backends/shm/cross_memory.hpp"
#include "backends/shm/faster_way.hpp"
#include "backends/shm/keys.hpp"
#include "backends/shm/shared_copy.hpp"

namespace sluice::backends::shm {

/// The receiver's side. `way`: around; or undecided, for memory of a GPU that its driver gives to other processes,
/// which the peer's may refuse. `peer`: its process; 0: the kernel does not let us reach it.
Landed land_around(const Slots& target, const Signal& signal, Landing::Way way, pid_t peer, Sent& sent);

/// The sender's side.
class BouncePut final : public StreamPut {
 public:
  /// `bounce` is the peer's, as mapped here, `stride` bytes apart. A part fills no more than `bounce_max` bytes of it
  /// if `kernel` is allowed, but for those of GPUs. `ways`: of all puts to the peer. `why_around`: why the target is
  /// not mapped that could have been; else nothing.
  BouncePut(Slots source, Slots bounce, std::size_t slot_bytes, Signal signal, device::Watch& watch, Mapped mapped,
            CrossMemory kernel, std::size_t bounce_max, std::shared_ptr<FasterWay> ways,
            std::optional<std::string> why_around)
      : StreamPut(source, bounce, signal, watch, std::move(mapped), std::move(why_around)), slot_bytes_(slot_bytes),
        kernel_(kernel), room_(kernel.pid == 0 ? slot_bytes : std::min(bounce_max, slot_bytes)), ways_(std::move(ways)),
        timed_(static_cast<std::size_t>(bounce.depth)) {}

  /// Kernels would have to know for each size how the bytes are moved.
  std::optional<ByKernel> by_kernel(device::Driver*) override { return std::nullopt; }
  std::string describe() const override;

 private:
  void move(device::Lane lane, std::uint64_t epoch, Range part) override;
  void move_all(device::Lane lane, std::uint64_t first, std::uint64_t last) override;
  struct Choice {
    Way way = Way::cached;
    bool takes_turn = false;  ///< it was chosen
    bool shared = false;      ///< both ranks may copy
  };

  /// For the next put. Few bytes are copied in without the peer, but for those whose time is wanted or that the kernel
  /// copies.
  Choice choose(device::Lane lane, Range part) const noexcept;
  /// All of `move` but the signal. False: it was refused, which has failed the watch.
  bool bring(device::Lane lane, std::uint64_t epoch, Range part, Choice choice);
  bool may_be_shared(device::Lane lane, Range part) const noexcept;
  bool copy_with_peer(device::Lane lane, std::uint64_t epoch, Range part, Way way);

  std::size_t slot_bytes_;
  CrossMemory kernel_;
  std::size_t room_;  // bytes of the bounce memory of a slot
  std::shared_ptr<FasterWay> ways_;
  std::uint32_t turn_ = FasterWay::kFirstTurn;  // counts puts that may be shared
  std::vector<SharedCopy::Timed> timed_;        // of each slot
};

}  // namespace sluice::backends::shm
