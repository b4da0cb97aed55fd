// SPDX-License-Identifier: Apache-2.0
// The targets by which a rank reaches the words and the memory of its peers. Each is opened by its first use.
#pragma once

#include <sluice/window.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/limit.hpp"
#include "rma/by_rank.hpp"
#include "rma/group.hpp"
#include "rma/patience.hpp"
#include "rma/words.hpp"

namespace sluice::rma {

class Peers {
 public:
  Peers(const Group& group, Words own) : group_(group), own_(std::move(own)) {}

  /// @throws Error{Code::bad_argument} if there is no such rank
  void check_rank(Rank rank) const {
    if (rank < 0 || rank >= group_.size) [[unlikely]]
      refuse(rank);
  }

  /// The words of a peer.
  Target& words(Rank rank, base::Limit& limit) { return reached(rank, limit).words; }
  /// Adds to a word of a peer; returns it as it was. After an error it may yet change.
  std::uint64_t add(Rank rank, std::size_t offset, std::uint64_t value, base::Limit& limit) {
    Peer& peer = reached(rank, limit);
    if (peer.mapped.exist()) [[likely]]
      return peer.mapped.add(offset, value);
    return peer.words.fetch_add(offset, value, limit.left());
  }
  /// True if each change of the words of a peer is one instruction.
  bool maps(Rank rank, base::Limit& limit) { return reached(rank, limit).mapped.exist(); }
  /// Subtracts a lock from a word of a peer; may return before.
  void subtract(Rank rank, std::size_t offset, std::uint64_t lock, base::Limit& limit) {
    Peer& peer = reached(rank, limit);
    if (peer.mapped.exist()) [[likely]]
      return static_cast<void>(peer.mapped.add(offset, 0 - lock));
    subtract_by_message(peer.words, offset, lock);
  }
  /// The memory of a peer.
  Target& memory(Rank rank, base::Limit& limit);
  /// The memory of a peer, if it was reached before; else null. @throws Error the loss of the peer
  Target* known_memory(Rank rank);

  // For the short way of a lock. Null: the words were not reached lately, or are not mapped here.
  const detail::MappedWords* words_now(Rank rank) const {
    const Peer* const peer = peers_.lately(rank);
    return peer != nullptr && peer->mapped.exist() ? &peer->mapped : nullptr;
  }
  const detail::MappedWords* masters_words_now() const { return masters_words_; }
  /// Completes the accesses to the memory of a peer that has `words_now`. Without a limit.
  void flush_now(Rank rank) {
    Peer* const peer = peers_.lately(rank);
    if (peer->has_memory) peer->memory.drain(kForever);
  }

  /// Completes the accesses to the memory of a peer, or of all.
  void flush(Rank rank, base::Limit& limit) {
    check_rank(rank);
    if (Peer* const known = peers_.find(rank)) flush(*known, limit);
  }
  void flush_all(base::Limit& limit);
  /// Completes also the changes of words, such as those of `subtract`. If a peer is lost, `close` completes the rest.
  void drain_all(base::Limit& limit);

  /// Throws if the peer is lost, as far as its words were reached before.
  void check_alive(Rank rank);

  /// Closes all targets. After an error it may be called again.
  void close(base::Limit& limit);

 private:
  struct Peer {
    Target words;
    detail::MappedWords mapped;  ///< the same words
    Target memory;
    bool has_words = false;  ///< the words were reached
    bool has_memory = false;
  };
  static void flush(Peer& peer, base::Limit& limit) {
    if (peer.has_memory) in_steps(limit, [&](Timeout step) { peer.memory.drain(step); });
  }
  [[noreturn, gnu::cold]] void refuse(Rank rank) const;
  /// The peer, whose words this rank reaches.
  Peer& reached(Rank rank, base::Limit& limit) {
    Peer& peer = peers_[rank];
    if (!peer.has_words) [[unlikely]]
      reach_words(peer, rank, limit);
    return peer;
  }
  void subtract_by_message(Target& words, std::size_t offset, std::uint64_t lock);
  void reach_words(Peer& peer, Rank rank, base::Limit& limit);

  const Group& group_;
  Words own_;
  ByRank<Peer> peers_;
  const detail::MappedWords* masters_words_ = nullptr;  // those of rank 0; null: not mapped here, or not reached yet
};

}  // namespace sluice::rma
