// SPDX-License-Identifier: Apache-2.0
// The kernels of tests: programs' own.
#include "tests/device/arrivals.hpp"
#include "tests/device/litmus.hpp"
#include "tests/device/relay.hpp"

namespace sluice::test {

SLUICE_KERNEL relay(RelayArgs args) { relay(kernel::Block(), args); }
SLUICE_KERNEL relay_of_warp(RelayArgs args) { relay(kernel::Warp(), args); }
SLUICE_KERNEL relay_of_thread(RelayArgs args) { relay(kernel::Thread(), args); }
SLUICE_KERNEL relay_in_place(RelayArgs args) { relay<RelayManner::in_place>(kernel::Block(), args); }
SLUICE_KERNEL relay_of_parts(RelayArgs args) { relay<RelayManner::part>(kernel::Block(), args); }

SLUICE_KERNEL litmus_fill(LitmusArgs args) {
  litmus_fill(kernel::Block(), args.slot, args.bytes, args.channel, *args.count);
}
SLUICE_KERNEL litmus_check(LitmusArgs args) {
  litmus_check(kernel::Block(), args.slot, args.bytes, args.channel, *args.count);
}
SLUICE_KERNEL litmus_send(LitmusSend args) { litmus_send(kernel::Block(), args); }
SLUICE_KERNEL litmus_receive(LitmusReceive args) { litmus_receive(kernel::Block(), args); }

SLUICE_KERNEL note_arrivals(ArrivalsArgs args) {
  note_arrivals(args, [](const std::byte* data) { return data; });
}

}  // namespace sluice::test
