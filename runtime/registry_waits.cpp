// SPDX-License-Identifier: Apache-2.0
// Questions of ends that wait long, and their peers' answers: so the table of waits can name the end that owes
// something.
#include <algorithm>
#include <cstddef>
#include <string>

#include "runtime/engine.hpp"
#include "runtime/registry.hpp"

namespace sluice::runtime {

void Registry::ask(std::uint64_t end) noexcept {
  {
    const std::lock_guard lock(asking_.mutex);
    asking_.value.insert(end);
  }
  engine_.wake();
}

void Registry::send_questions() {
  std::set<std::uint64_t> asking;
  {
    const std::lock_guard lock(asking_.mutex);
    asking.swap(asking_.value);
  }
  for (const std::uint64_t id : asking) {
    const ChannelEnd* const end = end_here(id);
    if (end == nullptr) continue;
    Peer& peer = peer_of(*end);
    if (end->remote_id != 0) {
      send(peer, Kind::question, end->remote_id);
    } else {
      base::note_openings(end, openings_of(peer), peer.linked);
    }
  }
}

/// The ends that the peer has opened, and that no end of this rank matches: "a sender of tag 8, a receiver of tag 9".
std::string Registry::openings_of(const Peer& peer) const {
  constexpr std::size_t kMost = 4;
  std::string text;
  std::size_t named = 0;
  for (const auto& [key, waiting] : waiting_there_) {
    if (key.world_peer != peer.rank || waiting.empty()) continue;
    if (++named > kMost) return text + " and more";
    text += (text.empty() ? "" : ", ");
    if (key.role == Role::window) {
      text += "a target of a window";
      continue;
    }
    text += (key.role == Role::sender ? "a receiver" : "a sender");
    text += " of tag " + std::to_string(key.tag);
  }
  return text;
}

void Registry::on_question(Peer& peer, Reader& message) {
  const ChannelEnd* const end = end_here(message.get<std::uint64_t>());
  if (end != nullptr && end->remote_id != 0) send(peer, Kind::answer, end->remote_id, end->counts());
}

void Registry::on_answer(Reader& message) {
  const ChannelEnd* const end = end_here(message.get<std::uint64_t>());
  if (end != nullptr) base::note_answer(end, message.get<base::EndCounts>());
}

}  // namespace sluice::runtime
