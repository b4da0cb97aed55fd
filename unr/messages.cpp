// SPDX-License-Identifier: Apache-2.0
#include "unr/messages.hpp"

#include <sluice/error.hpp>

#include <utility>

namespace sluice::unr {
namespace {

/// Elements leave no gaps, and are whole pieces.
bool is_solid(const Layout& type) {
  return type.pieces.size() == 1 && type.extent > 0 && type.pieces[0].offset == 0 &&
         type.pieces[0].bytes == type.extent;
}

}  // namespace

std::string name_of(Key key) {
  if ((key >> 32) == 0) return "tag " + std::to_string(key);
  return "alltoallv number " + std::to_string(key >> 32);
}

std::vector<Piece> pieces_of(Rank rank, std::size_t bytes, std::size_t offset, std::size_t count, const Layout& type) {
  if (is_solid(type) && offset <= bytes && count <= (bytes - offset) / type.extent)
    return count == 0 ? std::vector<Piece>{} : std::vector<Piece>{{offset, count * type.extent}};
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < count; ++i) {
    for (const Piece& piece : type.pieces) {
      const std::size_t at = offset + i * type.extent + piece.offset;
      if (at > bytes || piece.bytes > bytes - at)
        throw Error(Code::bad_argument, rank, -1, 0, 0,
                    "bytes " + std::to_string(at) + " to " + std::to_string(at + piece.bytes) +
                        " of a message lie outside of " + std::to_string(bytes) + " bytes of memory");
      if (piece.bytes == 0) continue;
      if (!pieces.empty() && pieces.back().offset + pieces.back().bytes == at) {
        pieces.back().bytes += piece.bytes;
      } else {
        pieces.push_back({at, piece.bytes});
      }
    }
  }
  return pieces;
}

Ordered ordered(const std::vector<Message>& messages) {
  Ordered all;
  for (std::size_t i = 0; i < messages.size(); ++i) all[{messages[i].peer, messages[i].key}].push_back(i);
  return all;
}

std::vector<Landing> landings_of(const std::vector<Message>& receives, std::size_t pack_up_to) {
  constexpr std::size_t kAligned = 8;
  std::vector<Landing> landings;
  std::map<std::pair<Rank, SignalCore*>, std::size_t> packed;  // landings that later messages share
  for (std::size_t i = 0; i < receives.size(); ++i) {
    const Message& message = receives[i];
    const bool packs = !message.contiguous() || (message.bytes <= pack_up_to && pack_up_to > 0);
    std::size_t at = landings.size();
    if (packs) at = packed.emplace(std::pair(message.peer, message.signal), at).first->second;
    if (at == landings.size()) landings.push_back({message.peer, message.signal, packs, 0, {}, {}});
    Landing& landing = landings[at];
    landing.offsets.push_back((landing.bytes + kAligned - 1) / kAligned * kAligned);
    landing.bytes = landing.offsets.back() + message.bytes;
    landing.messages.push_back(i);
  }
  for (Landing& landing : landings) {
    if (landing.messages.size() == 1 && receives[landing.messages[0]].contiguous()) landing.packed = false;
  }
  return landings;
}

}  // namespace sluice::unr
