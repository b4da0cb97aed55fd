// SPDX-License-Identifier: Apache-2.0
// A program's kernel with channels in it: two of them, in two ranks, pass messages to and fro. Compiled for CUDA, for
// HIP, and for the host.
#pragma once

#include <sluice/device.hpp>

namespace sluice::test {

struct RelayArgs {
  static constexpr const char* kKernel = "relay";
  DeviceSender to;
  DeviceReceiver from;
  std::uint64_t rounds;
  std::uint64_t* wrong;   ///< bytes that were not what the other has put
  std::uint64_t* result;  ///< the first that was not ok
};

/// What byte `i` of a message is.
SLUICE_DEVICE std::byte relayed(std::uint64_t round, std::uint64_t i) {
  return static_cast<std::byte>(round * 7 + i * 3);
}

template <class Group>
SLUICE_DEVICE void relay(const Group& group, const RelayArgs& args) {
  const auto is_ok = [&](DeviceResult result) {
    if (result != DeviceResult::ok && group.index() == 0) *args.result = static_cast<std::uint64_t>(result);
    return result == DeviceResult::ok;
  };
  std::uint64_t wrong = 0;
  for (std::uint64_t round = 1; round <= args.rounds; ++round) {
    std::byte* slot = nullptr;
    if (!is_ok(args.to.acquire(group, slot))) return;
    for (std::uint64_t i = group.index(); i < args.to.slot_bytes(); i += group.size()) slot[i] = relayed(round, i);
    if (!is_ok(args.to.put(group))) return;
    const std::byte* came = nullptr;
    if (!is_ok(args.from.wait(group, came))) return;
    for (std::uint64_t i = group.index(); i < args.from.slot_bytes(); i += group.size())
      wrong += came[i] == relayed(round, i) ? 0 : 1;
    if (!is_ok(args.from.release(group))) return;
  }
  if (wrong != 0) *args.wrong = wrong;
}

}  // namespace sluice::test
