// SPDX-License-Identifier: Apache-2.0
// A thread that sees signal n sees all data of n: kernels of a program write every word of a slot for its epoch, and
// count other values. Compiled for CUDA, for HIP, and for the host.
#pragma once

#include <sluice/device.hpp>

namespace sluice::test {

/// One end of a channel. A graph replays the same arguments, so epochs are counted in memory.
struct LitmusCount {
  std::uint64_t epochs;  ///< that were written, or looked at
  std::uint64_t wrong;   ///< the last of them that was not all there; 0: none
  std::uint64_t result;  ///< the first DeviceResult that was not ok
};

/// The value of a word of an epoch's slot: it identifies the channel, the epoch and the place.
SLUICE_DEVICE std::uint64_t litmus_word(std::uint64_t channel, std::uint64_t epoch, std::uint64_t place) {
  return (channel << 56 | epoch << 16 | place) * 0x9E3779B97F4A7C15U;
}

template <class Group>
SLUICE_DEVICE void litmus_fill(const Group& group, std::byte* slot, std::uint64_t bytes, std::uint64_t channel,
                               LitmusCount& count) {
  const std::uint64_t epoch = count.epochs + 1;
  auto* const words = reinterpret_cast<kernel::Eight*>(slot);
  for (std::uint64_t i = group.index(); i < bytes / 8; i += group.size()) words[i] = litmus_word(channel, epoch, i);
  group.sync();  // all have read the count
  if (group.index() == 0) count.epochs = epoch;
}

template <class Group>
SLUICE_DEVICE void litmus_check(const Group& group, const std::byte* slot, std::uint64_t bytes, std::uint64_t channel,
                                LitmusCount& count) {
  const std::uint64_t epoch = count.epochs + 1;
  const auto* const words = reinterpret_cast<const kernel::Eight*>(slot);
  bool wrong = false;
  // The last one first: what is copied in order comes last there.
  for (std::uint64_t i = group.index(); i < bytes / 8; i += group.size()) {
    const std::uint64_t place = bytes / 8 - 1 - i;
    wrong = wrong || words[place] != litmus_word(channel, epoch, place);
  }
  if (wrong) count.wrong = epoch;
  group.sync();
  if (group.index() == 0) count.epochs = epoch;
}

/// A slot that a stream, or a graph, has acquired or received.
struct LitmusArgs {
  static constexpr const char* kFill = "litmus_fill";
  static constexpr const char* kCheck = "litmus_check";
  std::byte* slot;
  std::uint64_t bytes;
  std::uint64_t channel;
  LitmusCount* count;
};

/// So many puts by a kernel, or what takes them.
template <class End>
struct LitmusRounds {
  End end;
  std::uint64_t rounds;
  std::uint64_t channel;
  LitmusCount* count;
};
struct LitmusSend : LitmusRounds<DeviceSender> {
  static constexpr const char* kKernel = "litmus_send";
};
struct LitmusReceive : LitmusRounds<DeviceReceiver> {
  static constexpr const char* kKernel = "litmus_receive";
};

template <class Group>
SLUICE_DEVICE bool litmus_ok(const Group& group, DeviceResult result, LitmusCount& count) {
  if (result != DeviceResult::ok && group.index() == 0) count.result = static_cast<std::uint64_t>(result);
  return result == DeviceResult::ok;
}

template <class Group>
SLUICE_DEVICE void litmus_send(const Group& group, const LitmusSend& args) {
  for (std::uint64_t round = 0; round < args.rounds; ++round) {
    std::byte* slot = nullptr;
    if (!litmus_ok(group, args.end.acquire(group, slot), *args.count)) return;
    litmus_fill(group, slot, args.end.slot_bytes(), args.channel, *args.count);
    if (!litmus_ok(group, args.end.put(group), *args.count)) return;
  }
}

template <class Group>
SLUICE_DEVICE void litmus_receive(const Group& group, const LitmusReceive& args) {
  for (std::uint64_t round = 0; round < args.rounds; ++round) {
    const std::byte* slot = nullptr;
    if (!litmus_ok(group, args.end.wait(group, slot), *args.count)) return;
    litmus_check(group, slot, args.end.slot_bytes(), args.channel, *args.count);
    if (!litmus_ok(group, args.end.release(group), *args.count)) return;
  }
}

}  // namespace sluice::test
