// SPDX-License-Identifier: Apache-2.0
// A barrier of ranks on words of theirs.
#pragma once

#include "rma/mpi/control.hpp"

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace sluice::mpi_rma {

/// A rank, and where its words for one purpose are.
struct Member {
  Rank rank = 0;  ///< in the context
  Place place;
};

/// Rounds of a barrier: in round k each rank signals the rank 2^k above it (Hensgen, Finkel,
/// Manber, "Two Algorithms for Barrier Synchronization", 1988).
class Meeting {
 public:
  /// Words that it needs of each rank.
  static constexpr std::size_t kWords = 32;

  /// `first`: the first of its words at each place.
  Meeting(Control& control, std::size_t first) : control_(control), first_(first) {}

  /// Returns once all have called it. `member(i)` is the i-th of `size`, and this rank is the one at `self`.
  /// `await(ready)` waits until `ready()` is true.
  template <class MemberOf, class Await>
  void meet(int self, int size, MemberOf member, Await await) {
    ++turn_;
    const Place own = member(self).place;
    std::size_t round = first_;
    for (std::int64_t step = 1; step < size; step *= 2, ++round) {
      const Member peer = member(static_cast<int>((self + step) % size));
      control_.swap(peer.rank, peer.place, round, turn_);
      await([&, turn = turn_] { return control_.look(own, round) >= turn; });
    }
  }

 private:
  Control& control_;
  std::size_t first_;
  std::uint64_t turn_ = 0;
};

}  // namespace sluice::mpi_rma
