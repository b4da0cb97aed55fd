// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/options.hpp"
#include "apps/common/usage_error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace {

using Sizes = std::vector<std::size_t>;

TEST(Sizes, are_the_powers_of_two_of_a_range) {
  EXPECT_EQ(bench::parse_sizes("8:64"), (Sizes{8, 16, 32, 64}));
  EXPECT_EQ(bench::parse_sizes("9:65"), (Sizes{16, 32, 64}));
  EXPECT_EQ(bench::parse_sizes("512k:1m"), (Sizes{512 << 10, 1 << 20}));
  EXPECT_EQ(bench::parse_sizes("4k"), (Sizes{4096}));
  EXPECT_EQ(bench::parse_sizes("8,64:128,1m"), (Sizes{8, 64, 128, 1 << 20}));
}

TEST(Sizes, begin_with_the_empty_message_where_the_range_begins_with_zero) {
  EXPECT_EQ(bench::parse_sizes("0:4"), (Sizes{0, 1, 2, 4}));
  EXPECT_EQ(bench::parse_sizes("0"), (Sizes{0}));
}

TEST(Sizes, that_cannot_be_are_refused) {
  for (const char* text : {"", ":", "8:", ":8", "8:4", "9:15", "8:x", "1:2:3", "-8:8", "8q", "1:2g", "8,", ",8", "8,x"})
    EXPECT_THROW(bench::parse_sizes(text), apps::UsageError) << text;
}

TEST(Split, leaves_out_what_is_empty) {
  EXPECT_EQ(bench::split("a,b"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(bench::split(",a,,b,"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(bench::split("").empty());
}

apps::Parsed parse(std::vector<const char*> arguments, bench::Options& options) {
  arguments.insert(arguments.begin(), "sluice-bench");
  return bench::parse(static_cast<int>(arguments.size()), arguments.data(),
                      {{"latency", "one way"}, {"sparse_exchange", "rounds"}, {"rate", "windows"}}, options);
}

TEST(Provider, is_that_of_a_single_backend) {
  bench::Options options;
  for (const auto& [backend, provider] : std::vector<std::pair<const char*, const char*>>{
           {"ofi:tcp", "tcp"}, {"", ""}, {"shm", ""}, {"ofi:tcp,shm", ""}, {"shm,ofi:tcp", ""}}) {
    options.backend = backend;
    EXPECT_EQ(bench::ofi_provider(options), provider) << backend;
  }
}

TEST(CommandLine, is_read) {
  bench::Options options;
  const auto parsed =
      parse({"latency", "--stream",  "host",      "--memory", "user",    "--sizes", "8:16",      "--depth",
             "4",       "--against", "floor,mpi", "--touch",  "--iters", "7",       "--rounds",  "3",
             "--rails", "8",         "--busy",    "5",        "--csv",   "file",    "--columns", "cup-ecs"},
            options);
  ASSERT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(options.bench, "latency");
  EXPECT_EQ(options.stream, bench::StreamChoice::host);
  EXPECT_EQ(options.memory, bench::MemoryChoice::user);
  EXPECT_EQ(options.sizes, (Sizes{8, 16}));
  EXPECT_EQ(options.depth, 4);
  EXPECT_EQ(options.iterations, 7);
  EXPECT_EQ(options.rounds, 3);
  EXPECT_EQ(options.rails, 8);
  EXPECT_EQ(options.busy, 5);
  EXPECT_TRUE(options.touch);
  EXPECT_EQ(options.csv, "file");
  EXPECT_EQ(options.columns, bench::CsvColumns::cup_ecs);
  EXPECT_EQ(options.against, (std::vector<std::string>{"floor", "mpi"}));
}

TEST(CommandLine, pins_as_the_bench_wants_unless_it_is_said) {
  bench::Options options;
  ASSERT_TRUE(parse({"latency"}, options).run);
  EXPECT_FALSE(options.pin);
  ASSERT_TRUE(parse({"latency", "--pin"}, options).run);
  EXPECT_EQ(options.pin, true);
  ASSERT_TRUE(parse({"latency", "--no-pin"}, options).run);
  EXPECT_EQ(options.pin, false);
}

TEST(CommandLine, has_goals) {
  bench::Options options;
  ASSERT_TRUE(parse({"latency", "--goal", "floor=0.85@8:16k,mpi*=1"}, options).run);
  ASSERT_EQ(options.goals.size(), 2U);
  EXPECT_EQ(options.goals[0].rival, "floor");
  EXPECT_EQ(options.goals[1].text, "mpi*=1");
}

TEST(CommandLine, has_offsets_in_a_page) {
  bench::Options options;
  ASSERT_TRUE(parse({"latency", "--offsets", "0,16,4095"}, options).run);
  EXPECT_EQ(options.offsets, (Sizes{0, 16, 4095}));
}

TEST(CommandLine, has_help_that_says_what_is_measured_and_what_a_ratio_is) {
  bench::Options options;
  const auto parsed = parse({"--help"}, options);
  EXPECT_EQ(parsed.exit_code, 0);
  for (const char* const text : {"  latency          one way\n", "  sparse_exchange  rounds\n",
                                 "  rate             windows\n", "ratio", "Above 1\nSluice is faster"})
    EXPECT_NE(parsed.text.find(text), std::string::npos) << text << " is not in:\n" << parsed.text;
}

TEST(CommandLine, has_the_stream_of_the_library_and_its_older_name) {
  for (const char* const stream : {"program", "inline"}) {
    bench::Options options;
    ASSERT_TRUE(parse({"latency", "--stream", stream}, options).run) << stream;
    EXPECT_EQ(options.stream, bench::StreamChoice::inline_) << stream;
  }
}

TEST(CommandLine, that_is_wrong_gives_one_line_and_exit_code_2) {
  const std::vector<std::vector<const char*>> wrong = {
      {},
      {"lateny"},
      {"latency", "--frobnicate"},
      {"latency", "--sizes", "x"},
      {"latency", "--stream", "metal"},
      {"latency", "--rails", "0"},
      {"latency", "--rails", "9"},
      {"latency", "--busy", "0"},
      {"latency", "--depth", "0"},
      {"latency", "--neighbours", "5"},
      {"latency", "--columns", "comb"},
      {"latency", "--goal", "floor"},
      {"latency", "--offsets", ""},
      {"latency", "--offsets", "16,4096"},
  };
  for (const auto& arguments : wrong) {
    bench::Options options;
    const auto parsed = parse(arguments, options);
    EXPECT_FALSE(parsed.run);
    EXPECT_EQ(parsed.exit_code, 2);
    EXPECT_EQ(std::ranges::count(parsed.text, '\n'), 1) << parsed.text;
  }
}

}  // namespace
