// SPDX-License-Identifier: Apache-2.0
// The parameters that the bench `model` finds in times.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "apps/bench/model/fit.hpp"
#include "apps/bench/model/predict.hpp"
#include "apps/bench/model/written.hpp"
#include "apps/common/usage_error.hpp"
#include "tests/unit/own_file.hpp"

namespace {

using sluice::collectives::ByteCost;
using sluice::collectives::LogGP;
using sluice::collectives::Model;

LogGP known() {
  return {.latency = 900,
          .send = 120,
          .receive = 80,
          .gap = 300,
          .bytes = ByteCost({{0, 0, 0.4}}),
          .way = ByteCost({{0, 0, 0.9}, {8192, 5000, 0.5}}),
          .copy = ByteCost({{0, 0, 0.1}}),
          .combine = ByteCost({{0, 0, 0.3}})};
}

/// Times that a machine with these parameters would measure; each is wrong by up to `noise` of itself.
bench::Times times_of(const LogGP& costs, double noise = 0) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> wrong(1 - noise, 1 + noise);
  bench::Times times;
  times.put = costs.send * wrong(random);
  times.receive = costs.receive * wrong(random);
  const double empty = 2 * (costs.send + costs.latency + costs.receive);
  for (std::size_t bytes = 8; bytes <= 65536; bytes *= 2) {
    const double one = (empty + costs.way(bytes)) * wrong(random);
    times.one.push_back({bytes, one});
    times.train.push_back({bytes, one + (bench::kTrain - 1) * (costs.gap + costs.bytes(bytes)) * wrong(random)});
    times.copied.push_back({bytes, one + costs.copy(bytes)});
    times.combined.push_back({bytes, one + costs.combine(bytes)});
  }
  return times;
}

TEST(BenchModel, finds_the_parameters_that_made_the_times) {
  const LogGP found = bench::fit(times_of(known()));
  EXPECT_NEAR(found.latency, known().latency, 10);  // the smallest message has bytes
  EXPECT_DOUBLE_EQ(found.send, known().send);
  EXPECT_DOUBLE_EQ(found.receive, known().receive);
  EXPECT_NEAR(found.gap, known().gap, 10);
  ASSERT_EQ(found.bytes.lines().size(), 1U);
  EXPECT_NEAR(found.bytes.lines()[0].per_byte, 0.4, 0.001);
  EXPECT_NEAR(found.copy(65536), known().copy(65536), 100);
  EXPECT_NEAR(found.combine(65536), known().combine(65536), 100);
}

TEST(BenchModel, finds_where_the_protocol_changes) {
  const LogGP found = bench::fit(times_of(known()));
  ASSERT_EQ(found.way.lines().size(), 2U) << found.way.text();
  EXPECT_EQ(found.way.lines()[1].from, 8192U);
  EXPECT_NEAR(found.way.lines()[0].per_byte, 0.9, 0.01);
  EXPECT_NEAR(found.way.lines()[1].per_byte, 0.5, 0.01);
}

TEST(BenchModel, finds_them_in_noise) {
  const LogGP found = bench::fit(times_of(known(), 0.03));
  EXPECT_NEAR(found.latency, known().latency, 100);
  EXPECT_NEAR(found.gap, known().gap, 60);
  EXPECT_NEAR(found.bytes(65536), known().bytes(65536), 0.15 * known().bytes(65536));
  EXPECT_NEAR(found.way(65536), known().way(65536), 0.15 * known().way(65536));
}

TEST(BenchModel, keeps_the_sum_where_nothing_is_left_for_the_latency) {
  bench::Times times = times_of(known());
  times.receive = 5000;
  const LogGP found = bench::fit(times);
  EXPECT_EQ(found.latency, 0);
  EXPECT_DOUBLE_EQ(found.send + found.receive, times.one.front().ns / 2);
}

TEST(BenchModel, a_fit_like_another_has_its_lines) {
  const LogGP all = bench::fit(times_of(known()));
  const LogGP round = bench::fit(times_of(known(), 0.2), &all);
  ASSERT_EQ(round.way.lines().size(), 2U);
  EXPECT_EQ(round.way.lines()[1].from, 8192U);
}

TEST(BenchModel, reads_what_ran_in_a_description) {
  EXPECT_EQ(bench::what_ran("allreduce 'x': shares (why: a, b)\n  channel").algorithm, "shares");
  const bench::Ran tree = bench::what_ran("broadcast 'x': level tree (why: levels), levels: 3, 12\n  levels: 9");
  EXPECT_EQ(tree.algorithm, "level tree");
  EXPECT_EQ(tree.levels, (sluice::collectives::Levels{3, 12}));
  const bench::Ran barrier = bench::what_ran("barrier 'x': dissemination, ways: 2");
  EXPECT_EQ(barrier.algorithm, "dissemination");
  EXPECT_EQ(barrier.ways, 2);
  EXPECT_EQ(bench::what_ran("allgather 'x': puts").algorithm, "puts");
}

/// Not what the measured parameters would choose.
TEST(BenchModel, predicts_what_ran) {
  using bench::Collective;
  const LogGP costs = known();
  const Model model(costs);
  const auto predicted = [&](Collective collective, const bench::Ran& ran) {
    const auto time = bench::predict(model, collective, ran, 12, 4096);
    return time ? time->total() : -1;
  };
  for (const int ways : {1, 2, 3})
    EXPECT_EQ(predicted(Collective::barrier, {"dissemination", ways, {}}), model.dissemination(12, ways).total());
  for (const sluice::collectives::Levels& levels : {sluice::collectives::Levels{11}, {3, 3}, {2, 2, 2}})
    EXPECT_EQ(predicted(Collective::broadcast, {"level tree", 0, levels}),
              model.level_broadcast(12, 4096, levels).total());
  EXPECT_EQ(predicted(Collective::broadcast, {"shares", 0, {}}), model.shared_broadcast(12, 4096).total());
  EXPECT_EQ(predicted(Collective::allreduce, {"shares", 0, {}}), model.shared_allreduce(12, 4096).total());
  EXPECT_EQ(predicted(Collective::alltoall, {"batched", 0, {}}), model.stepwise(12, 4096, 5).total());
  EXPECT_EQ(predicted(Collective::alltoall, {"pairwise", 0, {}}), model.stepwise(12, 4096, 1).total());
  EXPECT_EQ(predicted(Collective::alltoall, {"node-aware", 0, {}}), -1);
  EXPECT_EQ(predicted(Collective::allreduce, {"lanes", 0, {}}), -1);
}

TEST(BenchModel, adds_what_a_root_loses_that_passes_a_long_message_on) {
  const LogGP costs = known();
  const Model model(costs);
  const auto lost = [&](const bench::Ran& ran, const sluice::collectives::Time& time, std::size_t bytes) {
    return bench::predict(model, bench::Collective::broadcast, ran, 12, bytes)->total() - time.total();
  };
  for (const std::size_t bytes : {std::size_t{8192}, std::size_t{65536}}) {
    SCOPED_TRACE(bytes);
    const double expected = bytes > 8192 ? costs.copy(bytes) : 0;
    const sluice::collectives::Levels levels{3, 3};
    EXPECT_NEAR(lost({"binomial tree", 0, {}}, model.binomial_broadcast(12, bytes), bytes), expected, 1e-6);
    EXPECT_NEAR(lost({"level tree", 0, levels}, model.level_broadcast(12, bytes, levels), bytes), expected, 1e-6);
    EXPECT_NEAR(lost({"shares", 0, {}}, model.shared_broadcast(12, bytes), bytes), expected, 1e-6);
  }
}

TEST(BenchModel, writes_one_section_and_keeps_the_other) {
  using sluice::collectives::parse_parameters;
  using sluice::collectives::text_of;
  LogGP mapped = known();
  mapped.latency = 7;
  std::string text = bench::merged_parameters("# of mine\n", "mapped", "shm", mapped);
  text = bench::merged_parameters(text, "network", "ofi:tcp", known());
  mapped.latency = 9;
  text = bench::merged_parameters(text, "mapped", "threads", mapped);
  EXPECT_EQ(bench::merged_parameters(text, "mapped", "threads", mapped), text);
  EXPECT_EQ(text.find("# of mine\n# network, ofi:tcp: "), 0U) << text;
  EXPECT_EQ(text.find("shm"), std::string::npos) << text;
  const auto parsed = parse_parameters(text, "x");
  EXPECT_EQ(text_of(parsed.mapped, "a"), text_of(mapped, "a"));
  EXPECT_EQ(text_of(parsed.network, "a"), text_of(known(), "a"));
}

TEST(BenchModel, replaces_no_file_of_something_else) {
  const std::string path = sluice::tests::own_file("no-parameters");
  std::ofstream(path) << "a letter\n";
  EXPECT_THROW((void)bench::parameters_in(path), apps::UsageError);
  EXPECT_EQ(bench::parameters_in(path + "-that-is-not-there"), "");
  std::filesystem::remove(path);
}

TEST(BenchModel, many_ranks_are_limited_by_messages_and_memory) {
  const LogGP costs = known();
  const bench::MemoryCosts memory{.end = 1000, .peer = 2000};
  const auto rows = bench::scale_to(Model(costs), memory, 100'000, 65536);
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[4].limit.find("memory per rank"), 0U) << rows[4].limit;
  // Long messages: a channel and one that says that it may come, each way; they land in the result.
  EXPECT_EQ(rows[4].ends, 4 * 99'999);
  EXPECT_EQ(rows[4].memory, 99'999 * (4 * 1000. + 2000) + 65536 * 100'000.);
  const auto eager = bench::scale_to(Model(costs), memory, 100'000, 8);
  EXPECT_EQ(eager[4].ends, 2 * 99'999);
  EXPECT_EQ(eager[4].memory, 99'999 * (2 * 1000. + 2000 + 64) + 8 * 100'000.);
  const auto small = bench::scale_to(Model(costs), memory, 16, 8);
  EXPECT_EQ(small[0].limit.find("latency of rounds"), 0U) << small[0].limit;
}

TEST(BenchModel, many_ranks_choose_by_what_is_read_later_too) {
  const LogGP& costs = sluice::collectives::built_in().mapped;
  const Model model(costs);
  constexpr std::size_t kBytes = 4096;
  const auto rows = bench::scale_to(model, {}, 2, kBytes);
  EXPECT_EQ(rows[1].algorithm, "binomial tree");
  EXPECT_LT(model.shared_broadcast(2, kBytes).total(), rows[1].time.total());
  EXPECT_EQ(rows[2].algorithm, "recursive doubling");
  EXPECT_LT(model.shared_allreduce(2, kBytes).total(), rows[2].time.total());
  const auto by_shares = bench::scale_to(model, {}, 16, 16 * kBytes);
  EXPECT_EQ(by_shares[2].algorithm, "shares");
  EXPECT_EQ(by_shares[2].time.total(), model.shared_allreduce(16, 16 * kBytes).total()) << "without the reading";
}

TEST(BenchModel, a_goal_is_about_what_was_measured_where_the_parameters_were) {
  using bench::error_text;
  const std::vector<double> all{2, 2, 2, 1.1, 1.1, 1.1};
  EXPECT_EQ(error_text("halo", all, all, std::nullopt), "median error of 6 predictions of halo: 55.0 %");
  EXPECT_NE(error_text("halo", all, all, 30).find("goal 30 %: fails"), std::string::npos);
  const std::string some = error_text("halo", all, {1.1, 1.1, 1.1}, 30);
  EXPECT_NE(some.find("of 3 while a line took as long as for the parameters: 10.0 %, goal 30 %: holds"),
            std::string::npos)
      << some;
  EXPECT_NE(error_text("halo", all, {1.1, 1.1}, 30).find("inconclusive"), std::string::npos);
  EXPECT_NE(error_text("halo", all, {}, 30).find("none, goal 30 %: inconclusive"), std::string::npos);
}

TEST(BenchModel, finds_what_a_step_of_a_collective_takes) {
  for (const int ranks : {2, 3, 16}) {
    LogGP costs = known();
    costs.step = 45;
    const double barrier = Model(costs).dissemination(ranks, 2).total();
    EXPECT_NEAR(bench::step_of(known(), ranks, 2, barrier), 45, 20) << ranks;  // the gap hides some
    EXPECT_EQ(bench::step_of(known(), ranks, 2, 0), 0);
  }
}

TEST(BenchModel, an_error_is_the_median_of_all) { EXPECT_NEAR(bench::median_error({0.9, 1.3, 1.0}), 10, 1e-9); }

}  // namespace
