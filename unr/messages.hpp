// SPDX-License-Identifier: Apache-2.0
// Messages of a plan, as recorded, and which of them travel together.
#pragma once

#include <sluice/memory.hpp>
#include <sluice/types.hpp>
#include <sluice/unr.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace sluice::unr {

/// By which sends and receives match: the tag; of an exchange of all, its number in the upper half, from 1 on.
using Key = std::uint64_t;

inline Tag tag_of(Key key) noexcept { return (key >> 32) == 0 ? static_cast<Tag>(key) : 0; }
std::string name_of(Key key);

struct Message {
  Rank peer = 0;
  Key key = 0;
  Slice memory;
  std::vector<Piece> pieces;  ///< of `memory`; pieces that adjoin are one, and none is empty
  std::size_t bytes = 0;
  SignalCore* signal = nullptr;  ///< null: a send that nothing counts

  /// True if the bytes can be the slot of a channel.
  bool contiguous() const noexcept { return pieces.size() <= 1; }
  Slice all() const { return pieces.empty() ? memory.slice(0, 0) : memory.slice(pieces[0].offset, pieces[0].bytes); }
};

/// The pieces of `count` elements from byte `offset` on.
/// @throws Error{Code::bad_argument} unless they lie in `bytes` bytes; `rank`: of the caller
std::vector<Piece> pieces_of(Rank rank, std::size_t bytes, std::size_t offset, std::size_t count, const Layout& type);

/// Messages of each peer and key, in their order: indexes. Messages of one key match in that order.
using Ordered = std::map<std::pair<Rank, Key>, std::vector<std::size_t>>;
Ordered ordered(const std::vector<Message>& messages);

/// Receives that one put carries, as indexes. In a slot that is packed each begins at a multiple of 8 bytes.
struct Landing {
  Rank peer = 0;
  SignalCore* signal = nullptr;
  bool packed = false;
  std::size_t bytes = 0;  ///< of the slot
  std::vector<std::size_t> messages;
  std::vector<std::size_t> offsets;
};

/// Only messages of one peer and one signal share a put: others may be reset at different times, and a put waits until
/// all that it overwrites is free.
std::vector<Landing> landings_of(const std::vector<Message>& receives, std::size_t pack_up_to);

}  // namespace sluice::unr
