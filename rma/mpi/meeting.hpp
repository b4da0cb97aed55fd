// SPDX-License-Identifier: Apache-2.0
// A barrier of ranks on words of theirs.
#pragma once

#include "rma/barrier.hpp"
#include "rma/first_failure.hpp"
#include "rma/mpi/control.hpp"

#include <cstddef>
#include <cstdint>

namespace sluice::mpi_rma {

/// A rank, and where its words for one purpose are.
struct Member {
  Rank rank = 0;  ///< in the context
  Place place;
};

/// A barrier of ranks on words of theirs: in each round a rank writes its turn into a word of the rank that it signals.
class Meeting {
 public:
  /// Words that it needs of each rank.
  static constexpr std::size_t kWords = 32;

  /// `first`: the first of its words at each place. This rank is the one at `self` of `size`.
  Meeting(Control& control, std::size_t first, int self, int size)
      : control_(control), first_(first), self_(self), barrier_(self, size) {}

  /// Returns once all have called it. After a failure it signals the others all the same, and then throws:
  /// the next call is the next meeting. `member(i)` is the i-th of them. `await(ready)` waits until `ready()` is true.
  void meet(auto member, auto await) {
    std::uint64_t* const own = control_.own(member(self_).place);
    const auto word = [this](int round) { return first_ + static_cast<std::size_t>(round); };
    rma::FirstFailure failure(false);
    const auto signal = [&](int round) {
      const Member peer = member(barrier_.to(round));
      failure.of([&] { control_.swap(peer.rank, peer.place, word(round), turn_); });
    };
    const auto ready = [&](int round) { return std::atomic_ref(own[word(round)]).load() >= turn_; };
    barrier_.pass(signal, [&](int round) { failure.of([&] { await([&] { return ready(round); }); }); });
    ++turn_;
    failure.report();
  }

 private:
  Control& control_;
  std::size_t first_;
  int self_;
  rma::Barrier barrier_;
  std::uint64_t turn_ = 1;
};

}  // namespace sluice::mpi_rma
