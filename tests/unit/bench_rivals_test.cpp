// SPDX-License-Identifier: Apache-2.0
// Rivals in a program in which MPI does not run.
#include "apps/bench/rivals/rivals.hpp"
#include "apps/common/usage_error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

Options against(std::vector<std::string> rivals, const char* backend = "") {
  Options options;
  options.backend = backend;
  options.sizes = {8};
  options.against = std::move(rivals);
  return options;
}

bool refused(const Options& options, RivalColumn column) {
  try {
    check_rivals(options, column);
  } catch (const apps::UsageError&) {
    return true;
  }
  return false;
}

bool offered(const std::string& name, const Options& options) {
  const auto rivals = rivals_for(options, &Rival::latency);
  return std::ranges::any_of(rivals, [&](const Rival* rival) { return name == rival->name; });
}

TEST(Rivals, are_left_out_of_a_side_that_they_lack) {
  EXPECT_FALSE(refused(against({"floor"}), &Rival::stream));
  EXPECT_EQ(rivals_for(against({"floor"}), &Rival::stream).size(), 1U);
  EXPECT_TRUE(rivals_for(against({"floor"}), &Rival::halo).empty());
}

TEST(Rivals, all_are_those_that_can_run) {
  EXPECT_EQ(rivals_for(against({"all"}), &Rival::latency).size(), 2U);
  EXPECT_TRUE(rivals_for(against({"none"}), &Rival::latency).empty());
}

TEST(Rivals, of_memory_that_cannot_be_mapped_are_for_it_alone) {
  EXPECT_FALSE(offered("shared_copy", against({"all"})));
  EXPECT_FALSE(offered("two_copies", against({"all"})));
  Options options = against({"all"});
  options.memory = MemoryChoice::user;
  EXPECT_TRUE(offered("shared_copy", options));
  EXPECT_TRUE(offered("two_copies", options));
  options.backend = "ofi:tcp";
  EXPECT_FALSE(offered("shared_copy", options));
}

TEST(Rivals, below_which_nothing_is_are_floors) {
  for (const char* floor :
       {"floor", "protocol_floor", "ofi_floor", "ofi_floor_wait", "ofi_floor_data", "raw", "raw_host"})
    EXPECT_TRUE(is_floor(floor)) << floor;
  for (const char* rival : {"mpi", "synchronised", "nvshmem", "nccl", "ucx"}) EXPECT_FALSE(is_floor(rival)) << rival;
}

TEST(Rivals, that_cannot_be_are_refused) {
  EXPECT_TRUE(refused(against({"flor"}), &Rival::latency));
  EXPECT_TRUE(refused(against({"floor"}), &Rival::halo));
  EXPECT_TRUE(refused(against({"floor", "mpi"}), &Rival::latency));
  EXPECT_FALSE(refused(against({"floor", "all", "none"}), &Rival::latency));
}

TEST(Rivals, of_memory_are_for_backends_on_memory) {
  for (const char* backend : {"", "shm", "threads", "threads,shm"})
    EXPECT_TRUE(offered("floor", against({"all"}, backend)));
  for (const char* backend : {"ofi:tcp", "shm,ofi:tcp", "cxi"}) {
    EXPECT_FALSE(offered("floor", against({"all"}, backend))) << backend;
    EXPECT_TRUE(refused(against({"floor"}, backend), &Rival::latency)) << backend;
  }
}

TEST(Rivals, of_a_network_are_for_its_backend_alone) {
  for (const char* rival : {"ofi_floor", "ofi_floor_wait", "ofi_floor_data"}) {
    for (const char* backend : {"", "shm", "ofi:tcp,shm", "ofi:pigeon"})
      EXPECT_TRUE(refused(against({rival}, backend), &Rival::latency)) << rival << " " << backend;
    EXPECT_TRUE(refused(against({rival}, "ofi:tcp"), &Rival::halo)) << rival;
  }
}

TEST(Rivals, of_a_network_that_it_cannot_carry_are_named) {
  EXPECT_EQ(left_out(against({"all"}, "ofi:pigeon"), &Rival::latency).size(), 3U);
  EXPECT_TRUE(left_out(against({"none"}, "ofi:pigeon"), &Rival::latency).empty());
  EXPECT_TRUE(left_out(against({"all"}, "shm"), &Rival::latency).empty());
}

TEST(Rivals, on_gpus_are_pairs_of_processes_on_one_machine) {
  EXPECT_TRUE(refused(against({"raw"}), &Rival::latency));
  Options options = against({"raw"}, "ofi:tcp");
  options.stream = StreamChoice::cuda;
  options.ranks = 2;
  EXPECT_TRUE(refused(options, &Rival::latency));
  options.backend = "shm";
  options.ranks = 3;
  EXPECT_TRUE(refused(options, &Rival::latency));
  options.against = {"all"};
  EXPECT_EQ(left_out(options, &Rival::latency).size(), 7U);
  EXPECT_TRUE(left_out(against({"all"}), &Rival::latency).empty());
}

TEST(Rivals, on_gpus_are_alone_there) {
  Options options = against({"all"});
  options.stream = StreamChoice::cuda;
  EXPECT_FALSE(offered("floor", options));
  options.against = {"floor"};
  EXPECT_TRUE(refused(options, &Rival::latency));
}

}  // namespace
}  // namespace bench
