// SPDX-License-Identifier: Apache-2.0
// The messages of alltoall's algorithms, counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "collectives/algorithms.hpp"
#include "collectives/alltoall.hpp"

namespace {

using namespace sluice;
using namespace sluice::collectives;

constexpr std::size_t kBlockBytes = 16;  // of a block

/// Of the rank that sends most.
struct Most {
  std::size_t messages = 0;
  std::size_t bytes = 0;
  bool operator==(const Most&) const = default;
};

struct Traffic {
  Most between;  ///< nodes
  Most within;   ///< a node
};

/// `make` makes the schedule of a rank.
template <class Make>
Traffic traffic_of(const Sets& nodes, int ranks, const Make& make) {
  Traffic most;
  for (Rank rank = 0; rank < ranks; ++rank) {
    Schedule schedule(rank, ranks);
    make(schedule, schedule.user({}), schedule.user({}));
    Traffic own;
    for (const Message& message : schedule.messages) {
      if (!message.sends) continue;
      Most& level = nodes.set_of(message.peer) == nodes.set_of(rank) ? own.within : own.between;
      ++level.messages;
      level.bytes += message.bytes;
    }
    const auto raise = [](Most& to, const Most& by) {
      to.messages = std::max(to.messages, by.messages);
      to.bytes = std::max(to.bytes, by.bytes);
    };
    raise(most.between, own.between);
    raise(most.within, own.within);
  }
  return most;
}

Traffic traffic(const Sets& nodes, int ranks, const Route& route) {
  return traffic_of(nodes, ranks, [&](Schedule& schedule, auto from, auto to) {
    routed_alltoall(schedule, from, to, kBlockBytes, route);
  });
}

Sets nodes_of_equal_size(int nodes, int ranks_of_node) {
  std::vector<int> set_of;
  for (int rank = 0; rank < nodes * ranks_of_node; ++rank) set_of.push_back(rank / ranks_of_node);
  return Sets(set_of);
}

// The formulas are those of the algorithms: p ranks on n nodes of s ranks, in sets of q.
constexpr int kNodes = 3;
constexpr std::size_t kN = kNodes;

TEST(Routes, by_a_leader_send_one_message_between_two_nodes) {
  constexpr std::size_t kS = 8;
  const Sets nodes = nodes_of_equal_size(kNodes, kS);
  const Traffic most = traffic(nodes, kNodes * kS, by_leaders(nodes));
  EXPECT_EQ(most.between, (Most{kN - 1, (kN - 1) * kS * kS * kBlockBytes}));
  // A leader gives each of the others all its blocks; they give it as much.
  EXPECT_EQ(most.within, (Most{kS - 1, (kS - 1) * kN * kS * kBlockBytes}));
}

TEST(Routes, by_leaders_send_one_message_between_two_sets) {
  constexpr std::size_t kS = 8;
  constexpr std::size_t kQ = 2;
  const Sets nodes = nodes_of_equal_size(kNodes, kS);
  const Sets groups = split(nodes, 4);
  const Traffic most = traffic(nodes, kNodes * kS, by_leaders(groups));
  EXPECT_EQ(most.between, (Most{(kN - 1) * 4, (kN - 1) * 4 * kQ * kQ * kBlockBytes}));
  EXPECT_EQ(most.within, (Most{3 + (kQ - 1), 3 * kQ * kQ * kBlockBytes + (kQ - 1) * kN * kS * kBlockBytes}));
}

TEST(Routes, by_places_send_one_message_of_each_rank_to_each_node) {
  constexpr std::size_t kS = 8;
  const Sets nodes = nodes_of_equal_size(kNodes, kS);
  const Traffic most = traffic(nodes, kNodes * kS, by_places(nodes));
  EXPECT_EQ(most.between, (Most{kN - 1, (kN - 1) * kS * kBlockBytes}));
  EXPECT_EQ(most.within, (Most{kS - 1, (kS - 1) * kN * kBlockBytes}));
}

TEST(Routes, by_places_of_sets_send_one_message_of_each_rank_to_each_set) {
  constexpr std::size_t kS = 8;
  constexpr std::size_t kQ = 2;
  const Sets nodes = nodes_of_equal_size(kNodes, kS);
  const Sets groups = split(nodes, 4);
  const Traffic most = traffic(nodes, kNodes * kS, by_places(groups));
  const std::size_t sets = kN * kS / kQ;
  EXPECT_EQ(most.between.messages + 3 + (kQ - 1), (sets - 1) + (kQ - 1));
  EXPECT_EQ(most.between.bytes, (kN - 1) * 4 * kQ * kBlockBytes);
  EXPECT_EQ(most.within, (Most{3 + (kQ - 1), 3 * kQ * kBlockBytes + (kQ - 1) * sets * kBlockBytes}));
}

TEST(Routes, by_leaders_and_places_send_one_message_of_each_leader_to_each_node) {
  constexpr std::size_t kS = 8;
  constexpr std::size_t kQ = 2;
  const Sets nodes = nodes_of_equal_size(kNodes, kS);
  const Sets groups = split(nodes, 4);
  const Traffic most = traffic(nodes, kNodes * kS, by_leaders_and_places(groups, nodes));
  EXPECT_EQ(most.between, (Most{kN - 1, (kN - 1) * kS * kQ * kBlockBytes}));
  EXPECT_EQ(most.within, (Most{3 + (kQ - 1), 3 * kN * kQ * kQ * kBlockBytes + (kQ - 1) * kN * kS * kBlockBytes}));
}

/// Nodes of any sizes, and ranks in any order: the target of a message is the one who expects it.
TEST(Routes, of_uneven_nodes_match_at_both_ends) {
  const Sets nodes(std::vector<int>{4, 7, 4, 4, 9, 7, 4, 4, 4, 7, 4});
  const Sets groups = split(nodes, 4);
  const int ranks = 11;
  for (const Route& route : {by_leaders(nodes), by_leaders(groups), by_places(nodes), by_places(groups),
                             by_leaders_and_places(groups, nodes)}) {
    std::map<std::tuple<Rank, Rank, Tag>, std::vector<std::size_t>> ends;
    for (Rank rank = 0; rank < ranks; ++rank) {
      Schedule schedule(rank, ranks);
      routed_alltoall(schedule, schedule.user(Slice()), schedule.user(Slice()), kBlockBytes, route);
      for (const Message& message : schedule.messages) {
        const auto key =
            message.sends ? std::tuple(rank, message.peer, message.tag) : std::tuple(message.peer, rank, message.tag);
        ends[key].push_back(message.bytes);
      }
    }
    for (const auto& [key, bytes] : ends) EXPECT_TRUE(bytes.size() == 2 && bytes[0] == bytes[1]);
  }
}

// In the rounds within a node a rank sends the shares of the others, and its own share to each of them; across nodes it
// sends a share in each of log2(n) rounds.
TEST(Lanes, send_a_share_of_the_numbers_in_each_round_between_nodes) {
  constexpr std::size_t kS = 4;
  constexpr std::size_t kNumbers = 4096 * kS;
  const Sets nodes = nodes_of_equal_size(4, kS);
  const Traffic most = traffic_of(nodes, 4 * kS, [&](Schedule& schedule, auto from, auto to) {
    lanes_allreduce(schedule, from, to, kNumbers, 8, nodes);
  });
  EXPECT_EQ(most.between, (Most{2, 2 * kNumbers / kS}));
  EXPECT_EQ(most.within, (Most{2 * (kS - 1), 2 * (kS - 1) * kNumbers / kS}));
}

TEST(Lanes, are_as_many_as_the_smallest_node_has_ranks) {
  const Sets nodes({0, 0, 0, 1, 1});
  const Traffic most = traffic_of(
      nodes, 5, [&](Schedule& schedule, auto from, auto to) { lanes_allreduce(schedule, from, to, 160, 8, nodes); });
  EXPECT_EQ(most.between, (Most{1, 80}));
  EXPECT_EQ(most.within, (Most{1 + 2, 80 + 2 * 80}));  // of the first of three
}

}  // namespace
