// SPDX-License-Identifier: Apache-2.0
// A ping-pong that a kernel does by itself: stores into memory that both processes have mapped, and a word that signals
// them. Compiled for GPUs, and for the host.
#pragma once

#include <sluice/device.hpp>

#include <cstddef>
#include <cstdint>

namespace rivals {

struct RawPingPongArgs {
  static constexpr const char* kKernel = "raw_ping_pong";
  const std::byte* source;
  std::byte* target;  ///< the other rank's
  std::uint64_t slots;
  std::uint64_t bytes;    ///< of a slot
  std::uint64_t* raised;  ///< the other rank's: the last round whose message has arrived
  std::uint64_t* awaited;
  std::uint64_t before;  ///< rounds of earlier launches
  std::uint64_t rounds;
  std::uint64_t first;  ///< 1: of the two ranks, the one that begins
};

/// Each message shows that the last one was read, so there are no credits.
template <class Group>
SLUICE_DEVICE void ping_pong(const Group& group, const RawPingPongArgs& args) {
  const auto put = [&](std::uint64_t round) {
    const std::uint64_t at = round % args.slots * args.bytes;
    sluice::kernel::copy(group, args.target + at, args.source + at, args.bytes);
    group.sync();
    if (group.index() == 0) sluice::kernel::store_release(*args.raised, round + 1);
  };
  for (std::uint64_t round = args.before; round < args.before + args.rounds; ++round) {
    if (args.first != 0) put(round);
    if (group.index() == 0) {
      while (sluice::kernel::load_acquire(*args.awaited) <= round) sluice::kernel::pause();
    }
    group.sync();
    if (args.first == 0) put(round);
  }
}

}  // namespace rivals
