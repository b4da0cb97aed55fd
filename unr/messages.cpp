// SPDX-License-Identifier: Apache-2.0
#include "unr/messages.hpp"

#include <sluice/error.hpp>

#include <algorithm>

namespace sluice::unr {

std::string name_of(Key key) {
  if ((key >> 32) == 0) return "tag " + std::to_string(key);
  return "alltoallv number " + std::to_string(key >> 32);
}

std::vector<Piece> pieces_of(Rank rank, std::size_t bytes, std::size_t offset, std::size_t count, const Layout& type) {
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

std::vector<Landing> landings_of(const std::vector<Message>& receives, std::size_t pack_up_to) {
  constexpr std::size_t kAligned = 8;
  std::vector<Landing> landings;
  for (std::size_t i = 0; i < receives.size(); ++i) {
    const Message& message = receives[i];
    const bool packs = !message.contiguous() || (message.bytes <= pack_up_to && pack_up_to > 0);
    const auto shares = [&](const Landing& one) {
      return packs && one.packed && one.peer == message.peer && one.signal == message.signal;
    };
    auto found = std::ranges::find_if(landings, shares);
    if (found == landings.end()) found = landings.insert(found, {message.peer, message.signal, packs, 0, {}, {}});
    found->offsets.push_back((found->bytes + kAligned - 1) / kAligned * kAligned);
    found->bytes = found->offsets.back() + message.bytes;
    found->messages.push_back(i);
  }
  for (Landing& landing : landings) {
    if (landing.messages.size() == 1 && receives[landing.messages[0]].contiguous()) landing.packed = false;
  }
  return landings;
}

}  // namespace sluice::unr
