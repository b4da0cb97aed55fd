// SPDX-License-Identifier: Apache-2.0
// A ping-pong by kernels alone: a kernel stores into memory that both processes have mapped, and then raises a word
// there. Compiled for GPUs, and by tests for the host.
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
  std::uint64_t bytes;          ///< of a slot
  std::uint64_t* their_signal;  ///< the number of messages that have arrived at the other rank
  std::uint64_t* my_signal;     ///< the number of messages that have arrived here
  std::uint64_t before;         ///< round trips of earlier launches
  std::uint64_t rounds;         ///< round trips of this launch
  std::uint64_t first;          ///< 1 on the rank that sends first, else 0
};

/// No credits are needed, because each message shows that the previous one was read.
template <class Group>
SLUICE_DEVICE void ping_pong(const Group& group, const RawPingPongArgs& args) {
  const auto put = [&](std::uint64_t round) {
    const std::uint64_t at = round % args.slots * args.bytes;
    sluice::kernel::copy(group, args.target + at, args.source + at, args.bytes);
    group.sync();
    if (group.index() == 0) sluice::kernel::store_release(*args.their_signal, round + 1);
  };
  for (std::uint64_t round = args.before; round < args.before + args.rounds; ++round) {
    if (args.first != 0) put(round);
    if (group.index() == 0) {
      while (sluice::kernel::load_acquire(*args.my_signal) <= round) sluice::kernel::pause();
    }
    group.sync();
    if (args.first == 0) put(round);
  }
}

}  // namespace rivals
