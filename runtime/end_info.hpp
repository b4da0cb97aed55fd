// SPDX-License-Identifier: Apache-2.0
// The facts of one end of a channel that never change, and the errors that name it.
#pragma once

#include <sluice/channel.hpp>
#include <sluice/error.hpp>

#include <compare>
#include <cstdint>
#include <string>

#include "base/fork.hpp"
#include "base/trace.hpp"
#include "runtime/block.hpp"

namespace sluice::runtime {

/// A target is an end whose user reaches the window of a peer; the end that the peer makes for it is of the window. The
/// counters and the notices of a window have no peer.
enum class Role : std::uint8_t { sender, receiver, target, window, counter, notices };

/// The role of the end that one of this role is matched with.
constexpr Role opposite(Role role) noexcept {
  constexpr Role kOpposite[] = {Role::receiver, Role::sender, Role::window, Role::target, Role::counter, Role::notices};
  return kOpposite[static_cast<std::size_t>(role)];
}

/// Ends match if their keys do.
struct ChannelKey {
  Rank world_peer = 0;
  std::string scope;
  Tag tag = 0;
  Role role = Role::sender;
  auto operator<=>(const ChannelKey&) const = default;
};

/// The memory of a slice, as backends take it.
device::Extent extent_of(const Slice& memory);
/// It is no memory of a GPU.
inline bool of_host(const Slice& memory) noexcept {
  const auto& block = detail::SliceAccess::block(memory);
  return block == nullptr || block->extent.driver == nullptr;
}

/// An end as its owner opened it.
struct Opening {
  ChannelKey key;
  Rank rank = 0;  ///< of this end and of the peer, in the context that it was opened in
  Rank peer = 0;
  Slice memory;
  ChannelOptions options;
  std::string name;
  std::string contents;
  int gpu = -1;        ///< of the stream that the options name, if that is a GPU's
  bool quiet = false;  ///< part of another end, which tells of failures
};

class EndInfo {
 public:
  EndInfo(Opening what, std::uint64_t number);

  /// Its verbs write into the memory of the peer.
  bool sends() const noexcept { return opening.key.role == Role::sender || opening.key.role == Role::target; }
  /// It is an end of a window, which has neither slots nor credits.
  bool of_window() const noexcept { return opening.key.role >= Role::target; }
  std::uint64_t depth() const noexcept { return static_cast<std::uint64_t>(opening.options.depth); }
  /// The slot of `epoch`. In program order the slice does not own the memory: counting an owner in and out takes as
  /// long as a small put. Work on any other stream may outlive the channel.
  Slice slot(std::uint64_t epoch, Stream::Kind used_by) const noexcept {
    using detail::SliceAccess;
    if (used_by == Stream::Kind::program_order) return SliceAccess::lend(opening.memory, slots.at(epoch), slot_bytes);
    return SliceAccess::make(SliceAccess::block(opening.memory), slots.at(epoch), slot_bytes);
  }
  /// The slots of `count` epochs, no more than there are slots, which own what `slot` does. `marked`: see Batch.
  Batch batch(std::uint64_t first, std::size_t count, Stream::Kind used_by, bool marked) const noexcept;
  Error error(Code code, std::uint64_t epoch, const std::string& what) const;
  [[noreturn, gnu::cold]] void misuse(std::uint64_t epoch, const std::string& what) const;
  bool alone() const noexcept { return opening.key.role >= Role::counter; }  ///< it has no peer
  /// The user's word for it: "channel", "window".
  const char* noun() const noexcept;
  /// "to rank 1, tag 7", or "from rank ...".
  std::string direction() const;
  /// Its lane in the timeline of `rank`. Arrows are named by what both ends know.
  base::trace::Channel trace_channel(Rank rank, base::trace::Track engine) const;

  const Opening opening;
  const std::uint64_t id;
  const std::size_t slot_bytes;
  const backends::Slots slots;
  const base::Origin origin;
};

}  // namespace sluice::runtime
