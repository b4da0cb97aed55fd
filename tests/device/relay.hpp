// SPDX-License-Identifier: Apache-2.0
// A program's kernel with channels in it: two of them, in two ranks, pass messages to and fro. Compiled for CUDA, for
// HIP, and for the host.
#pragma once

#include <sluice/device.hpp>

namespace sluice::test {

struct RelayArgs {
  static constexpr const char* kKernel = "relay";  ///< by a block
  static constexpr const char* kOfWarp = "relay_of_warp";
  static constexpr const char* kOfThread = "relay_of_thread";
  static constexpr const char* kInPlace = "relay_in_place";
  static constexpr const char* kOfParts = "relay_of_parts";
  DeviceSender to;
  DeviceReceiver from;
  std::uint64_t rounds;
  std::uint64_t* wrong;   ///< bytes that were not what the other has put
  std::uint64_t* result;  ///< the first that was not ok
};

/// How a kernel puts: the whole slot; in two steps, in between of which it writes into the peer's slot, or by a ring
/// where that is not in reach; or a part of the slot, or a whole one where parts are refused.
enum class RelayManner { whole, in_place, part };

/// The value of byte `i` of a message.
SLUICE_DEVICE std::byte relayed(std::uint64_t round, std::uint64_t i) {
  return static_cast<std::byte>(round * 7 + i * 3);
}

/// Fills all slots of a receiver before parts are put. Puts of parts must not change it around themselves.
inline constexpr std::byte kAroundParts{0xA5};

/// Which part of a slot is put. None, each fourth time: that only signals.
struct RelayPart {
  SLUICE_DEVICE RelayPart(std::uint64_t round, std::uint64_t slot_bytes)
      : offset(slot_bytes / 3), most(slot_bytes / 2), bytes(round % 4 == 0 ? 0 : most) {}
  SLUICE_DEVICE bool is_around(std::uint64_t i) const { return i < offset || i >= offset + most; }
  std::uint64_t offset;
  std::uint64_t most;
  std::uint64_t bytes;
};

template <class Group>
SLUICE_DEVICE void relay_fill(const Group& group, std::byte* slot, std::uint64_t bytes, std::uint64_t round) {
  for (std::uint64_t i = group.index(); i < bytes; i += group.size()) slot[i] = relayed(round, i);
}

/// `refused` too if the channel does what it must refuse.
template <RelayManner manner, class Group>
SLUICE_DEVICE DeviceResult relay_put(const Group& group, const DeviceSender& to, std::uint64_t round) {
  const std::uint64_t bytes = to.slot_bytes();
  std::byte* slot = nullptr;
  if constexpr (manner == RelayManner::in_place) {
    if (to.is_mapped()) {
      if (to.ring(group) != DeviceResult::refused) return DeviceResult::refused;
      DeviceResult begun = DeviceResult::timeout;
      while (begun == DeviceResult::timeout) begun = to.begin_put(group, slot, Polls{1000});
      if (begun != DeviceResult::ok) return begun;
      relay_fill(group, slot, bytes, round);
      to.signal(group);
      return DeviceResult::ok;
    }
    if (to.begin_put(group, slot) != DeviceResult::refused) return DeviceResult::refused;
  }
  if (const DeviceResult result = to.acquire(group, slot); result != DeviceResult::ok) return result;
  relay_fill(group, slot, bytes, round);
  if constexpr (manner == RelayManner::in_place) {
    return to.ring(group);
  } else if constexpr (manner == RelayManner::part) {
    const RelayPart part(round, bytes);
    const DeviceResult result = to.put(group, part.offset, part.bytes);
    if (to.moves_parts()) return result;
    return result == DeviceResult::refused ? to.put(group) : DeviceResult::refused;
  } else {
    return to.put(group);
  }
}

/// `in_parts`: what the other does.
template <RelayManner manner, class Group>
SLUICE_DEVICE std::uint64_t relay_wrong(const Group& group, const std::byte* came, std::uint64_t bytes,
                                        std::uint64_t round, bool in_parts) {
  const RelayPart part(round, bytes);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = group.index(); i < bytes; i += group.size()) {
    const bool is_part = manner == RelayManner::part && in_parts;
    const bool is_around = is_part && part.is_around(i);
    if (is_part && !is_around && part.bytes == 0) continue;  // from an earlier round
    wrong += came[i] == (is_around ? kAroundParts : relayed(round, i)) ? 0 : 1;
  }
  return wrong;
}

template <RelayManner manner = RelayManner::whole, class Group>
SLUICE_DEVICE void relay(const Group& group, const RelayArgs& args) {
  const auto is_ok = [&](DeviceResult result) {
    if (result != DeviceResult::ok && group.index() == 0) *args.result = static_cast<std::uint64_t>(result);
    return result == DeviceResult::ok;
  };
  std::uint64_t wrong = 0;
  for (std::uint64_t round = 1; round <= args.rounds; ++round) {
    if (!is_ok(relay_put<manner>(group, args.to, round))) return;
    const std::byte* came = nullptr;
    if (!is_ok(args.from.wait(group, came))) return;
    // The other sender is of the same kind.
    wrong += relay_wrong<manner>(group, came, args.from.slot_bytes(), round, args.to.moves_parts());
    if (!is_ok(args.from.release(group))) return;
  }
  if (wrong != 0) *args.wrong = wrong;
}

}  // namespace sluice::test
