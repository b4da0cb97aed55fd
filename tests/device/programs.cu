// SPDX-License-Identifier: Apache-2.0
// The kernels of tests: programs' own.
#include "tests/device/litmus.hpp"
#include "tests/device/relay.hpp"

namespace sluice::test {

SLUICE_KERNEL relay(RelayArgs args) { relay(kernel::Block(), args); }

// Compiled, so that a program may: the one is run.
SLUICE_KERNEL relay_of_warp(RelayArgs args) { relay(kernel::Warp(), args); }
SLUICE_KERNEL relay_of_thread(RelayArgs args) { relay(kernel::Thread(), args); }

SLUICE_KERNEL litmus_fill(LitmusArgs args) {
  litmus_fill(kernel::Block(), args.slot, args.bytes, args.channel, *args.count);
}
SLUICE_KERNEL litmus_check(LitmusArgs args) {
  litmus_check(kernel::Block(), args.slot, args.bytes, args.channel, *args.count);
}
SLUICE_KERNEL litmus_send(LitmusSend args) { litmus_send(kernel::Block(), args); }
SLUICE_KERNEL litmus_receive(LitmusReceive args) { litmus_receive(kernel::Block(), args); }

SLUICE_KERNEL signal_only(DeviceSender to, std::uint64_t* result) {
  std::byte* slot = nullptr;
  const DeviceResult begun = to.begin_put(kernel::Block(), slot, Polls{1000});
  if (begun == DeviceResult::ok) to.signal(kernel::Block());
  if (kernel::Block().index() == 0) *result = static_cast<std::uint64_t>(begun);
}

}  // namespace sluice::test
