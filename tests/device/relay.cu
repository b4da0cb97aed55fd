// SPDX-License-Identifier: Apache-2.0
#include "tests/device/relay.hpp"

namespace sluice::test {

SLUICE_KERNEL relay(RelayArgs args) { relay(kernel::Block(), args); }

// Compiled, so that a program may: the one is run.
SLUICE_KERNEL relay_of_warp(RelayArgs args) { relay(kernel::Warp(), args); }
SLUICE_KERNEL relay_of_thread(RelayArgs args) { relay(kernel::Thread(), args); }

SLUICE_KERNEL signal_only(DeviceSender to, std::uint64_t* result) {
  std::byte* slot = nullptr;
  const DeviceResult begun = to.begin_put(kernel::Block(), slot, Polls{1000});
  if (begun == DeviceResult::ok) to.signal(kernel::Block());
  if (kernel::Block().index() == 0) *result = static_cast<std::uint64_t>(begun);
}

}  // namespace sluice::test
