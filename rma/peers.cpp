// SPDX-License-Identifier: Apache-2.0
#include "rma/peers.hpp"

#include <string>

#include "rma/first_failure.hpp"

namespace sluice::rma {

void Peers::refuse(Rank rank) const {
  throw group_.error(Code::bad_argument,
                     "there is no rank " + std::to_string(rank) + " among the " + std::to_string(group_.size), rank);
}

void Peers::reach_words(Peer& peer, Rank rank, base::Limit& limit) {
  if (peer.words.peer() < 0) peer.words = group_.words_of(rank);
  if (!peer.words.connected()) in_steps(limit, [&](Timeout step) { peer.words.wait_connected(step); });
  peer.mapped = detail::MappedWords::of(peer.words);
  if (rank == 0 && peer.mapped.exist()) masters_words_ = &peer.mapped;
  peer.has_words = true;
}

void Peers::subtract_by_message(Target& words, std::size_t offset, std::uint64_t lock) {
  const Slice minus = own_.slice(lock == kShared ? at::kMinusShared : at::kMinusExclusive, kWord);
  words.accumulate({}, Op::sum, Number::uint64, minus, offset);
}

/// The page of the peer has a handle of its memory, which may be a block of no bytes.
Target& Peers::memory(Rank rank, base::Limit& limit) {
  check_rank(rank);
  Peer& peer = peers_[rank];
  if (peer.memory.peer() < 0) {
    Target& words = this->words(rank, limit);
    const Slice copy = own_.slice(at::kCopy, sizeof(WindowHandle));
    words.get({}, copy, at::kHandle);
    in_steps(limit, [&](Timeout step) { words.drain(step); });
    peer.memory = Context(group_.context).target(std::span<const std::byte>(copy.data(), copy.bytes()));
  }
  if (!peer.memory.connected()) in_steps(limit, [&](Timeout step) { peer.memory.wait_connected(step); });
  peer.has_memory = true;
  return peer.memory;
}

Target* Peers::known_memory(Rank rank) {
  Peer* const known = peers_.find(rank);
  return known != nullptr && known->has_memory && known->memory.connected() ? &known->memory : nullptr;
}

void Peers::flush_all(base::Limit& limit) {
  FirstFailure failure(true);
  for (auto& [rank, peer] : peers_) failure.of([&] { flush(peer, limit); });
  failure.report();
}

void Peers::drain_all(base::Limit& limit) {
  for (auto& [rank, peer] : peers_) {
    flush(peer, limit);
    if (peer.has_words) in_steps(limit, [&](Timeout step) { peer.words.drain(step); });
  }
}

void Peers::check_alive(Rank rank) {
  Peer* const known = peers_.find(rank);
  if (known != nullptr && known->words.peer() >= 0) static_cast<void>(known->words.connected());
}

void Peers::close(base::Limit& limit) {
  for (auto& [rank, peer] : peers_) {
    for (Target* const target : {&peer.memory, &peer.words})
      if (target->peer() >= 0) in_steps(limit, [&](Timeout step) { target->close(step); });
  }
}

}  // namespace sluice::rma
