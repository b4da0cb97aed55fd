// SPDX-License-Identifier: Apache-2.0
// How many puts carry the messages of a plan, and how many bytes, as the timeline of a run has them.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "tests/conformance/cases.hpp"
#include "tests/conformance/unr_cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

struct CountedPuts {
  std::size_t puts = 0;
  std::size_t bytes = 0;
};

std::string counted_plan(std::size_t pack_up_to) { return "packs up to " + std::to_string(pack_up_to); }

/// The puts of a plan of this name.
CountedPuts puts_of_timeline(const std::string& file, const std::string& plan) {
  CountedPuts found;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.find("\"name\":\"put\",\"args\":{\"channel\":\"" + plan + ": to rank 1") == std::string::npos) continue;
    ++found.puts;
    const std::string key = "\"bytes\":";
    const std::size_t at = line.find(key);
    if (at != std::string::npos) found.bytes += std::stoul(line.substr(at + key.size()));
  }
  return found;
}

class UnrCounts : public testing::TestWithParam<Case> {};

/// A message begins at a multiple of 8 bytes of the put.
TEST_P(UnrCounts, one_put_for_all_short_messages_with_at_most_7_bytes_more_for_each) {
  struct Row {
    std::size_t pack_up_to;
    CountedPuts in_a_round;
  };
  static constexpr std::array<std::size_t, 5> kMessages{8, 64, 100, 1024, 3000};  // 4196 bytes
  static constexpr std::array<Row, 4> kRowsOfCounts{
      {{0, {5, 4196}}, {64, {4, 4196}}, {1024, {2, 4200}}, {4096, {1, 4200}}}};
  constexpr std::size_t kCountedRounds = 10;
  const std::string file = testing::TempDir() + "sluice_unr_counts_" + std::to_string(::getpid()) + ".json";
  Peers peers = GetParam().peers();
  peers.environment.push_back("SLUICE_TRACE=" + file);
  run_peers(peers, [](Context& context) {
    test::Order order(GetParam());
    const Buffer memory(context, GetParam(), 4196);
    for (const Row& row : kRowsOfCounts) {
      unr::Plan plan(context, counted_plan(row.pack_up_to), {.pack_up_to = row.pack_up_to});
      unr::Signal signal = plan.signal("signal");
      std::size_t at = 0;
      for (const std::size_t bytes : kMessages) {
        const Slice message = memory.all().slice(at, bytes);
        if (context.rank() == 0) plan.isend(message, 1, 7, signal);
        if (context.rank() == 1) plan.irecv(message, 0, 7, signal);
        at += bytes;
      }
      plan.commit(order.stream());
      if (context.rank() == 0) {
        EXPECT_EQ(plan.puts(), row.in_a_round.puts) << plan.describe();
      }
      for (std::uint64_t round = 1; round <= kCountedRounds; ++round) {
        if (context.rank() == 0) {
          order.run([&, round] { fill(memory.bytes(), {0, kTag, round}); });
          plan.start(order.stream());
        }
        signal.wait(order.stream());
        if (context.rank() == 1) order.run([&, round] { EXPECT_EQ(difference(memory.bytes(), {0, kTag, round}), ""); });
        signal.reset(order.stream());
      }
      context.synchronize(order.stream());
    }
    board().meet(context);
  });
  for (const Row& row : kRowsOfCounts) {
    const CountedPuts counted = puts_of_timeline(file, counted_plan(row.pack_up_to));
    EXPECT_EQ(counted.puts, kCountedRounds * row.in_a_round.puts) << counted_plan(row.pack_up_to);
    EXPECT_EQ(counted.bytes, kCountedRounds * row.in_a_round.bytes) << counted_plan(row.pack_up_to);
  }
  std::remove(file.c_str());
}

std::vector<Case> of_counts() {
  std::vector<Case> all = unr_cases({2});
  std::erase_if(all, [](const Case& one) { return one.user || one.cuda; });
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, UnrCounts, testing::ValuesIn(of_counts()), CaseName());

}  // namespace
