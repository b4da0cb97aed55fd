// SPDX-License-Identifier: Apache-2.0
// The model of collectives: its closed forms against the schedules, walked step by step, and the trees that it chooses.
#include <sluice/collectives.hpp>
#include <sluice/run.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/algorithms.hpp"
#include "collectives/alltoall.hpp"
#include "collectives/model.hpp"

namespace {

using namespace sluice;
using namespace sluice::collectives;

/// Costs that a sum keeps apart.
const LogGP& costs() {
  static const LogGP some{.latency = 1000,
                          .send = 100,
                          .receive = 70,
                          .gap = 100,
                          .bytes = ByteCost({{0, 0, 0.5}}),
                          .way = ByteCost({{0, 0, 0.5}}),
                          .copy = ByteCost({{0, 0, 0.25}}),
                          .combine = ByteCost({{0, 0, 0.75}}),
                          .step = 20};
  return some;
}

/// When each rank has done its steps, by the costs: a put takes the sender's time, and the message arrives L later.
class Walk {
 public:
  explicit Walk(const std::vector<Schedule>& ranks) : ranks_(ranks), next_(ranks.size()), clock_(ranks.size()) {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        while (next_[rank] < ranks_[rank].steps.size() && step(rank)) moved = true;
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) ended_ &= next_[rank] == ranks_[rank].steps.size();
  }
  bool ended() const { return ended_; }
  double last() const { return *std::ranges::max_element(clock_); }

 private:
  using Key = std::tuple<Rank, Rank, Tag, bool>;

  bool step(std::size_t rank) {
    const Schedule& schedule = ranks_[rank];
    const Step& step = schedule.steps[next_[rank]];
    double& clock = clock_[rank];
    if (step.kind == Step::Kind::put || step.kind == Step::Kind::wait) {
      const Message& message = schedule.messages[step.message];
      const auto own = static_cast<Rank>(rank);
      const Key key = message.sends ? Key{own, message.peer, message.tag, message.ready}
                                    : Key{message.peer, own, message.tag, message.ready};
      std::deque<double>& arrivals = arrivals_[key];
      if (message.sends) {
        clock += costs().send + costs().step + costs().bytes(message.bytes);
        arrivals.push_back(clock + costs().latency);
      } else {
        if (arrivals.empty()) return false;
        clock = std::max(clock, arrivals.front()) + costs().receive + costs().step;
        arrivals.pop_front();
      }
    }
    if (step.kind == Step::Kind::copy && step.first.of == Place::Of::message) clock += costs().copy(step.bytes);
    if (step.kind == Step::Kind::copy && step.first.of == Place::Of::user)
      clock += std::min(costs().way(step.bytes), costs().copy(step.bytes));
    if (step.kind == Step::Kind::combine) clock += costs().combine(step.bytes);
    ++next_[rank];
    return true;
  }

  const std::vector<Schedule>& ranks_;
  std::vector<std::size_t> next_;
  std::vector<double> clock_;
  std::map<Key, std::deque<double>> arrivals_;
  bool ended_ = true;
};

/// When the last of p ranks has its result. `make` appends the steps of a rank to its schedule.
template <class Make>
double walked(int p, Make make) {
  std::vector<Schedule> ranks;
  for (Rank rank = 0; rank < p; ++rank) {
    ranks.emplace_back(rank, p);
    make(ranks.back(), ranks.back().user(Slice()), ranks.back().user(Slice()));
  }
  const Walk walk(ranks);
  EXPECT_TRUE(walk.ended()) << p << " ranks wait for each other";
  return walk.last();
}

constexpr std::size_t kModelSizes[] = {8, 4096, 65536};
constexpr int kModelRanks[] = {2, 4, 8, 16};

std::vector<Share> equal_shares(int p, std::size_t bytes) {
  std::vector<Share> shares;
  const std::size_t part = bytes / static_cast<std::size_t>(p);
  for (std::size_t i = 0; i < static_cast<std::size_t>(p); ++i) shares.push_back({i * part, part});
  return shares;
}

TEST(Model, closed_forms_of_rounds_and_trees_are_the_times_of_their_schedules) {
  const Model model(costs());
  for (const int p : kModelRanks) {
    for (const std::size_t bytes : kModelSizes) {
      SCOPED_TRACE(std::to_string(p) + " ranks, " + std::to_string(bytes) + " bytes");
      const auto equal = [&](const Time& time, auto make) { EXPECT_NEAR(time.total(), walked(p, make), 1e-3); };
      equal(model.binomial_broadcast(p, bytes),
            [&](Schedule& rank, Place data, Place) { binomial_broadcast(rank, data, bytes, 1); });
      equal(model.binomial_reduce(p, bytes),
            [&](Schedule& rank, Place from, Place to) { binomial_reduce(rank, from, to, bytes, 1); });
      equal(model.doubling_allreduce(p, bytes),
            [&](Schedule& rank, Place from, Place to) { doubling_allreduce(rank, from, to, bytes); });
      equal(model.dissemination(p, 1), [&](Schedule& rank, Place, Place) { dissemination(rank, 1); });
      if (bytes <= kEager)
        equal(model.stepwise(p, bytes, 1),
              [&](Schedule& rank, Place from, Place to) { stepwise_alltoall(rank, from, to, bytes, 1); });
    }
  }
}

TEST(Model, closed_forms_of_exchanges_are_near_the_times_of_their_schedules) {
  constexpr double kNear = 0.25;
  const Model model(costs());
  for (const int p : kModelRanks) {
    for (const std::size_t bytes : kModelSizes) {
      SCOPED_TRACE(std::to_string(p) + " ranks, " + std::to_string(bytes) + " bytes");
      const auto near = [&](const char* what, const Time& time, auto make) {
        const double walk = walked(p, make);
        EXPECT_NEAR(time.total(), walk, kNear * walk) << what;
      };
      near("puts", model.puts(p, bytes), [&](Schedule& rank, Place from, Place to) {
        std::vector<Part> sends;
        std::vector<Part> receives;
        for (Rank peer = 0; peer < p; ++peer) {
          sends.push_back({peer, 0, from, bytes});
          receives.push_back({peer, 0, to, bytes});
        }
        exchange(rank, sends, receives);
      });
      near("puts in place", model.puts(p, bytes, true), [&](Schedule& rank, Place from, Place) {
        std::vector<Part> blocks;
        for (Rank peer = 0; peer < p; ++peer)
          if (peer != rank.rank) blocks.push_back({peer, 0, from, bytes});
        exchange(rank, blocks, blocks, true);
      });
      const std::vector<Share> shares = equal_shares(p, bytes);
      if (bytes / static_cast<std::size_t>(p) < 8) continue;
      near("allreduce by shares", model.shared_allreduce(p, bytes),
           [&](Schedule& rank, Place from, Place to) { shared_allreduce(rank, from, to, shares); });
      near("broadcast by shares", model.shared_broadcast(p, bytes),
           [&](Schedule& rank, Place data, Place) { shared_broadcast(rank, data, shares, 0); });
    }
  }
}

TEST(Model, messages_are_received_while_others_are_under_way) {
  LogGP slow_way = costs();
  slow_way.gap = 150;
  const auto time = [&](int count) { return Model(slow_way).exchange(count, 0, Landed::in_place).total(); };
  EXPECT_DOUBLE_EQ(time(4), (100 + 20) + 3 * 150 + 1000 + (70 + 20)) << "waits for the last one";
  EXPECT_DOUBLE_EQ(time(26), 26 * (100 + 20 + 70 + 20)) << "works all the time";
}

TEST(Model, own_blocks_are_copied_while_the_last_put_is_under_way) {
  LogGP quicker_way = costs();
  quicker_way.way = ByteCost({{0, 0, 0.125}});
  const double latency = costs().latency;
  EXPECT_EQ(Model(costs()).own_block(4000).total(), 0);
  EXPECT_DOUBLE_EQ(Model(costs()).own_block(8000).total(), 0.25 * 8000 - latency);
  EXPECT_DOUBLE_EQ(Model(quicker_way).own_block(16000).total(), 0.125 * 16000 - latency);
  const double in_place = Model(costs()).puts(4, 8000, true).total();
  EXPECT_DOUBLE_EQ(Model(costs()).puts(4, 8000).total() - in_place, 0.25 * 8000 - latency);
}

/// Full trees of each shape: their levels take c * k + b each.
TEST(Model, a_level_of_a_tree_takes_what_its_fan_out_costs) {
  const Model model(costs());
  for (const Levels& levels : {Levels{1}, Levels{3}, Levels{3, 2}, Levels{4, 2, 1}, Levels{2, 2, 2}}) {
    const int p = static_cast<int>(reach(levels));
    for (const std::size_t bytes : kModelSizes) {
      SCOPED_TRACE(text_of(levels) + ", " + std::to_string(bytes) + " bytes");
      EXPECT_NEAR(
          model.level_broadcast(p, bytes, levels).total(),
          walked(p, [&](Schedule& rank, Place data, Place) { level_broadcast(rank, data, bytes, 2 % p, levels); }),
          1e-3);
      EXPECT_NEAR(
          model.level_reduce(bytes, levels).total(),
          walked(p, [&](Schedule& rank, Place from, Place to) { level_reduce(rank, from, to, bytes, 2 % p, levels); }),
          1e-3);
    }
  }
}

double cost_of(const Levels& levels, double c, double b) {
  double sum = 0;
  for (const int fan_out : levels) sum += c * fan_out + b;
  return sum;
}

/// The least cost of all trees of up to five levels.
double least_cost(int ranks, double c, double b, Levels levels = {}) {
  if (reach(levels) >= ranks) return cost_of(levels, c, b);
  double least = c * ranks + b;
  const int most = levels.empty() ? ranks - 1 : levels.back();
  levels.push_back(0);
  if (levels.size() > 5) return least;
  for (levels.back() = 1; levels.back() <= most; ++levels.back()) {
    const double cost = least_cost(ranks, c, b, levels);
    least = std::min(least, cost);
  }
  return least;
}

TEST(Model, no_tree_of_levels_costs_less_than_the_one_that_is_chosen) {
  for (const auto& [c, b] : {std::pair{1.0, 0.5}, {1.0, 1.0}, {1.0, 5.7}, {1.0, 40.0}, {56.2, 320.0}}) {
    for (int ranks = 2; ranks <= 24; ++ranks) {
      const Levels levels = best_levels(ranks, c, b);
      EXPECT_GE(reach(levels), ranks);
      EXPECT_NEAR(cost_of(levels, c, b), least_cost(ranks, c, b), 1e-9) << ranks << " ranks, b / c = " << b / c;
    }
  }
  // The example of the talk.
  EXPECT_EQ(reach({3, 2}), 10);
}

TEST(Model, each_rank_of_a_tree_is_the_child_of_its_parent) {
  for (int size = 1; size <= 40; ++size) {
    for (const double b : {0.5, 3.0, 30.0}) {
      const Levels levels = best_levels(size, 1, b);
      const Rank root = size / 3;
      int children = 0;
      for (Rank rank = 0; rank < size; ++rank) {
        const Branch branch = level_branch(size, levels, root, rank);
        EXPECT_EQ(branch.is_root(), rank == root);
        for (const Rank child : branch.children) {
          ++children;
          EXPECT_EQ(level_branch(size, levels, root, child).parent, rank) << size << " ranks";
        }
      }
      EXPECT_EQ(children, size - 1);
    }
  }
}

TEST(Model, a_barrier_of_more_ways_hears_from_all) {
  const Model model(costs());
  for (int p = 1; p <= 16; ++p) {
    for (int ways = 1; ways <= std::max(1, p - 1); ++ways) {
      std::vector<Schedule> ranks;
      for (Rank rank = 0; rank < p; ++rank) dissemination(ranks.emplace_back(rank, p), ways);
      EXPECT_TRUE(Walk(ranks).ended());
      EXPECT_LE(Walk(ranks).last(), model.dissemination(p, ways).total() + 1e-3) << p << " ranks, ways: " << ways;
    }
    for (int ways = 2; ways < p; ++ways)
      EXPECT_LE(model.dissemination(p, model.best_ways(p)).total(), model.dissemination(p, ways).total());
  }
}

TEST(Model, alltoall_by_places_wins_with_small_blocks_on_many_nodes_and_puts_with_large_ones) {
  const Model within(built_in().mapped);
  const Model between(built_in().network);
  EXPECT_LT(by_places(within, between, 16, 32, 8).total(), between.puts(512, 8).total());
  EXPECT_GT(by_leaders(within, between, 16, 32, 4096).total(), between.puts(512, 4096).total());
}

TEST(Model, what_lands_in_place_is_read_later) {
  EXPECT_GT(Model(built_in().mapped).reading(4096).total(), 0);
  EXPECT_EQ(Model(built_in().network).reading(4096).total(), 0);
  const int code = sluice::run_threads(2, [](sluice::Context& context) {
    sluice::Memory from = context.allocate(4096), to = context.allocate(4096);
    const auto expect_chosen = [](sluice::Collective all, const std::string& algorithm) {
      EXPECT_NE(all.describe().find("': " + algorithm + " ("), std::string::npos) << all.describe();
      all.close();
    };
    expect_chosen(sluice::broadcast(context, "broadcast", to.all(), 0), "binomial tree");
    expect_chosen(sluice::allreduce(context, "sum", sluice::Op::sum, sluice::Number::float64, from.all(), to.all()),
                  "recursive doubling");
    expect_chosen(sluice::reduce(context, "reduce", sluice::Op::sum, sluice::Number::float64, from.all(), to.all(), 0),
                  "binomial tree");
  });
  EXPECT_EQ(code, 0);
}

TEST(Model, sets_of_many_ranks_take_longer_than_sets_of_fewer) {
  const Model within(built_in().mapped);
  const Model between(built_in().network);
  constexpr int kFew = 1 << 15;
  constexpr int kMany = 1 << 16;
  const auto time = [&](int size) { return by_leaders(within, between, 2, size, 8).total(); };
  EXPECT_GT(time(kMany), 3 * time(kFew));
  const auto with_groups = [&](int size) { return by_leaders_and_places(within, between, 2, 1, size, 8).total(); };
  EXPECT_GT(with_groups(kMany), 3 * with_groups(kFew));
}

TEST(Model, parameters_are_read_as_they_are_written) {
  const LogGP& mapped = built_in().mapped;
  const Parameters again =
      parse_parameters(text_of(costs(), "network") + "# a comment\n\n mapped.L = 7.5 # more\n", "x");
  EXPECT_EQ(text_of(again.network, "network"), text_of(costs(), "network"));
  EXPECT_EQ(again.mapped.latency, 7.5);
  EXPECT_EQ(again.mapped.send, mapped.send);
}

/// Ranks compare these texts: they would not notice costs that a rounded text makes equal.
TEST(Model, parameters_that_differ_in_their_last_bit_have_other_exact_texts) {
  const LogGP& same = costs();
  EXPECT_EQ(exact_text_of(same), exact_text_of(costs()));
  LogGP later = costs();
  later.latency = std::nextafter(later.latency, 2000);
  EXPECT_EQ(text_of(later, "x"), text_of(costs(), "x"));
  EXPECT_NE(exact_text_of(later), exact_text_of(costs()));
  LogGP longer = costs();
  longer.combine = ByteCost({{0, 0, std::nextafter(0.75, 1)}});
  EXPECT_NE(exact_text_of(longer), exact_text_of(costs()));
  LogGP swapped = costs();
  std::swap(swapped.way, swapped.copy);
  EXPECT_NE(exact_text_of(swapped), exact_text_of(costs()));
}

TEST(Model, bad_parameters_are_refused) {
  for (const char* text : {"L = 1", "mapped.L = -1", "mapped.L = x", "mapped.Q = 1", "near.L = 1", "mapped.G = 1",
                           "mapped.G = 8:0+1", "mapped.G = 0:0+1,0:1+1", "mapped.G = 0:0-1", "mapped.L"}) {
    EXPECT_THROW(parse_parameters(text, "a file"), std::invalid_argument) << text;
  }
}

}  // namespace
