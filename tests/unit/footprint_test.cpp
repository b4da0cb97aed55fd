// SPDX-License-Identifier: Apache-2.0
// Memory of collectives: the closed forms against the schedules of all ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "collectives/algorithms.hpp"
#include "collectives/footprint.hpp"

namespace {

using namespace sluice;
using namespace sluice::collectives;

constexpr std::size_t kFootprintSizes[] = {8, 24, 1000, 8192, 65536};
constexpr int kFootprintRanks[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 64, 100};

/// `make` appends the steps of a rank to its schedule.
template <class Make>
Footprint counted(int p, Make make) {
  Footprint most;
  for (Rank rank = 0; rank < p; ++rank) {
    Schedule schedule(rank, p);
    const collectives::Place from = schedule.scratch(0);  // not the place of the result
    make(schedule, from, schedule.user(Slice()));
    std::set<Rank> peers;
    double bytes = 0;
    for (const Message& message : schedule.messages) {
      peers.insert(message.peer);
      if (!message.sends && message.lands_aside() && message.bytes > 0) bytes += allocated(kLandings * message.bytes);
    }
    for (const std::size_t scratch : schedule.scratches) bytes += allocated(scratch);
    most.ends = std::max(most.ends, static_cast<double>(schedule.messages.size()));
    most.peers = std::max(most.peers, static_cast<double>(peers.size()));
    most.bytes = std::max(most.bytes, bytes);
  }
  return most;
}

void expect_equal(const Footprint& form, const Footprint& found, int p, std::size_t bytes) {
  EXPECT_EQ(form.ends, found.ends) << p << " ranks, " << bytes << " bytes";
  EXPECT_EQ(form.peers, found.peers) << p << " ranks, " << bytes << " bytes";
  EXPECT_EQ(form.bytes, found.bytes) << p << " ranks, " << bytes << " bytes";
}

TEST(Footprint, of_barriers_and_trees_is_what_their_schedules_have) {
  for (const int p : kFootprintRanks) {
    for (const int ways : {1, 2, 5})
      expect_equal(dissemination_footprint(p, ways),
                   counted(p, [&](Schedule& schedule, collectives::Place,
                                  collectives::Place) { dissemination(schedule, ways); }),
                   p, 0);
    for (const std::size_t bytes : kFootprintSizes) {
      expect_equal(binomial_broadcast_footprint(p, bytes),
                   counted(p, [&](Schedule& schedule, collectives::Place data,
                                  collectives::Place) { binomial_broadcast(schedule, data, bytes, 0); }),
                   p, bytes);
      for (const double c : {1.0, 5.0}) {
        const Levels levels = best_levels(p, c, 7);
        expect_equal(level_broadcast_footprint(p, bytes, levels),
                     counted(p, [&](Schedule& schedule, collectives::Place data,
                                    collectives::Place) { level_broadcast(schedule, data, bytes, 0, levels); }),
                     p, bytes);
      }
    }
  }
}

TEST(Footprint, of_sums_is_what_their_schedules_have) {
  for (const int p : kFootprintRanks) {
    for (const std::size_t bytes : kFootprintSizes) {
      expect_equal(doubling_allreduce_footprint(p, bytes),
                   counted(p, [&](Schedule& schedule, collectives::Place from,
                                  collectives::Place to) { doubling_allreduce(schedule, from, to, bytes); }),
                   p, bytes);
      const std::vector<Share> shares = even_shares(bytes, static_cast<std::size_t>(p), 8);
      expect_equal(shared_allreduce_footprint(p, bytes),
                   counted(p, [&](Schedule& schedule, collectives::Place from,
                                  collectives::Place to) { shared_allreduce(schedule, from, to, shares); }),
                   p, bytes);
    }
  }
}

TEST(Footprint, of_exchanges_is_what_their_schedules_have) {
  for (const int p : kFootprintRanks) {
    for (const std::size_t bytes : kFootprintSizes) {
      expect_equal(puts_footprint(p, bytes),
                   counted(p,
                           [&](Schedule& schedule, collectives::Place from, collectives::Place to) {
                             std::vector<collectives::Part> sends;
                             std::vector<collectives::Part> receives;
                             for (Rank rank = 0; rank < p; ++rank) {
                               sends.push_back({rank, 0, from, bytes});
                               receives.push_back({rank, 0, to, bytes});
                             }
                             exchange(schedule, sends, receives);
                           }),
                   p, bytes);
      const auto ranks = static_cast<std::size_t>(p);
      std::vector<Share> shares(ranks);
      for (std::size_t i = 0; i < ranks; ++i) shares[i] = {bytes / ranks * i, bytes / ranks};
      shares.back().bytes = bytes - shares.back().offset;
      expect_equal(shared_broadcast_footprint(p, bytes),
                   counted(p, [&](Schedule& schedule, collectives::Place data,
                                  collectives::Place) { shared_broadcast(schedule, data, shares, 0); }),
                   p, bytes);
    }
  }
}

}  // namespace
