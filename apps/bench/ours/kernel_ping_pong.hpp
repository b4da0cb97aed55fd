// SPDX-License-Identifier: Apache-2.0
// A ping-pong by kernels that hold the channels, with one block on each side. Compiled for CUDA and HIP, and by tests
// for the host.
#pragma once

#include <sluice/device.hpp>

#include <cstdint>

namespace bench {

struct KernelPingPongArgs {
  static constexpr const char* kKernel = "bench_ping_pong";
  sluice::DeviceSender to;
  sluice::DeviceReceiver from;
  std::uint64_t bytes;
  std::uint64_t rounds;
  std::uint64_t first;   ///< 1 on the side that sends first, else 0
  std::uint64_t* wrong;  ///< receives the DeviceResult of a verb that has failed
};

/// The answer is sent before the release.
template <class Group>
SLUICE_DEVICE void ping_pong(const Group& group, const KernelPingPongArgs& args) {
  const auto is_ok = [&](sluice::DeviceResult result) {
    if (result != sluice::DeviceResult::ok && group.index() == 0) *args.wrong = static_cast<std::uint64_t>(result);
    return result == sluice::DeviceResult::ok;
  };
  const auto put = [&] { return is_ok(args.to.put(group, 0, args.bytes)); };
  for (std::uint64_t round = 0; round < args.rounds; ++round) {
    const std::byte* slot = nullptr;
    if (args.first != 0 && !put()) return;
    if (!is_ok(args.from.wait(group, slot))) return;
    if (args.first == 0 && !put()) return;
    if (!is_ok(args.from.release(group))) return;
  }
}

}  // namespace bench
