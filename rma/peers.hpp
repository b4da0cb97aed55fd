// SPDX-License-Identifier: Apache-2.0
// The targets by which a rank reaches the words and the memory of its peers. Each is opened by its first use.
#pragma once

#include <sluice/window.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "base/limit.hpp"
#include "rma/group.hpp"
#include "rma/words.hpp"

namespace sluice::rma {

class Peers {
 public:
  Peers(const Group& group, Words own) : group_(group), own_(std::move(own)) {}

  /// @throws Error{Code::bad_argument} if there is no such rank
  void check_rank(Rank rank) const;

  /// The words of a peer.
  Target& words(Rank rank, base::Limit& limit);
  /// The memory of a peer.
  Target& memory(Rank rank, base::Limit& limit);

  /// Completes the accesses to the memory of a peer, or of all. Costs nothing where there are none.
  void flush(Rank rank, base::Limit& limit);
  void flush_all(base::Limit& limit);

  /// Throws if the peer is lost, as far as its words were reached before.
  void check_alive(Rank rank);

  /// Closes all targets. After an error it may be called again.
  void close(base::Limit& limit);

 private:
  struct Peer {
    Target words;
    Target memory;
    std::uint64_t flushed = 0;  ///< accesses to the memory that have completed
  };
  static void flush(Peer& peer, base::Limit& limit);

  const Group& group_;
  Words own_;
  std::unordered_map<Rank, Peer> peers_;
};

}  // namespace sluice::rma
