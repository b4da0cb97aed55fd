// SPDX-License-Identifier: Apache-2.0
// The cores of a process, in folders that stand for /proc, /sys and for what is mounted; and how ranks share them.
#include "base/cores.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "launch/shares.hpp"
#include "tests/unit/machine.hpp"
#include "tests/unit/program.hpp"

namespace {

using sluice::base::Cores;
using sluice::base::cores_here;
using sluice::runtime::Request;
using sluice::runtime::share_cores;
using sluice::runtime::Shares;
using sluice::tests::contains;
using sluice::tests::Machine;

constexpr const char* kCoresV2 = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kCoresV1 =
    "40 31 0:39 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";

TEST(Cores, of_a_machine_without_cgroups_have_no_quota) {
  EXPECT_EQ(cores_here(Machine("", "").root()).quota, std::nullopt);
}

TEST(Cores, have_the_least_quota_of_the_group_and_of_those_above_it) {
  const Machine machine(kCoresV2, "0::/job/step\n");
  machine.write("sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  EXPECT_EQ(cores_here(machine.root()).quota, std::nullopt);
  machine.write("sys/fs/cgroup/job/cpu.max", "250000 100000\n");
  EXPECT_EQ(cores_here(machine.root()).quota, 2.5);
  machine.write("sys/fs/cgroup/job/step/cpu.max", "50000 100000\n");
  EXPECT_EQ(cores_here(machine.root()).quota, 0.5);
  machine.write("sys/fs/cgroup/job/step/cpu.max", "400000 100000\n");
  EXPECT_EQ(cores_here(machine.root()).quota, 2.5);
}

TEST(Cores, have_the_quota_of_a_cgroup_of_version_1) {
  const Machine machine(kCoresV1, "9:cpuset:/docker/abc\n5:cpu,cpuacct:/docker/abc/job\n0::/\n");
  machine.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  machine.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cores_here(machine.root()).quota, std::nullopt);
  machine.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(cores_here(machine.root()).quota, 3.0);
}

TEST(Cores, are_those_of_the_affinity_mask) {
  sluice::tests::Program program([] {
    const std::vector<int> all = cores_here().mask;
    if (all.empty() || !sluice::base::bind_to(sluice::base::mask_of({all.back()}))) return 1;
    return cores_here().mask == std::vector{all.back()} ? 0 : 2;
  });
  EXPECT_EQ(program.result().code, 0);
}

TEST(Cores, that_are_threads_of_one_core_follow_each_other) {
  std::vector<int> cores = cores_here().mask;
  std::ranges::sort(cores);
  if (cores.size() < 2) return;
  const Machine machine("", "");
  // The first is a sibling of the last.
  for (const int core : cores) {
    machine.write("sys/devices/system/cpu/cpu" + std::to_string(core) + "/topology/thread_siblings_list",
                  core == cores.front() || core == cores.back() ? "1000," + std::to_string(core) + "\n"
                                                                : std::to_string(core) + "\n");
  }
  std::rotate(cores.begin(), cores.begin() + 1, cores.end());
  std::sort(cores.end() - 2, cores.end());
  EXPECT_EQ(cores_here(machine.root()).mask, cores);
}

Request of_ranks(int ranks, bool bind = false) {
  Request request;
  request.ranks = ranks;
  request.bind = bind;
  return request;
}

TEST(Shares, of_threads_are_the_cores_of_mask_and_quota_divided_by_the_ranks_here) {
  const std::vector<int> eight = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(share_cores(of_ranks(4), {eight, {}}, nullptr).threads, "2");
  EXPECT_EQ(share_cores(of_ranks(3), {eight, {}}, nullptr).threads, "2");
  EXPECT_EQ(share_cores(of_ranks(9), {eight, {}}, nullptr).threads, "1");
  EXPECT_EQ(share_cores(of_ranks(2), {eight, 4.5}, nullptr).threads, "2");
  EXPECT_EQ(share_cores(of_ranks(2), {eight, 0.5}, nullptr).threads, "1");
  EXPECT_EQ(share_cores(of_ranks(2), {eight, 64}, nullptr).threads, "4");
}

TEST(Shares, leave_a_lone_rank_and_a_number_that_was_set_as_they_are) {
  EXPECT_EQ(share_cores(of_ranks(1), {{0, 1}, {}}, nullptr).threads, "");
  const Shares set = share_cores(of_ranks(2), {{0, 1}, {}}, "7");
  EXPECT_EQ(set.threads, "");
  ASSERT_EQ(set.notes.size(), 1U);
  EXPECT_TRUE(contains(set.notes.front(), "OMP_NUM_THREADS=7 stays")) << set.notes.front();
}

TEST(Shares, name_mask_and_quota) {
  const Shares shares = share_cores(of_ranks(2), {{0, 1, 2}, 2.5}, nullptr);
  ASSERT_EQ(shares.notes.size(), 1U);
  EXPECT_EQ(shares.notes.front(),
            "OMP_NUM_THREADS=1 for each of 2 ranks: the affinity mask has 3 cores, the cgroup's quota is 2.50");
}

TEST(Shares, bind_nothing_unless_asked) { EXPECT_TRUE(share_cores(of_ranks(2), {{0, 1}, {}}, nullptr).bound.empty()); }

TEST(Shares, bind_each_rank_to_other_cores_of_the_mask_whatever_the_quota) {
  const Shares shares = share_cores(of_ranks(2, true), {{4, 8, 5}, 1.0}, nullptr);
  EXPECT_EQ(shares.bound, (std::vector<std::vector<int>>{{4}, {8, 5}}));
  EXPECT_EQ(shares.warning, "");
}

TEST(Shares, bind_no_rank_if_there_are_fewer_cores_than_ranks) {
  const Shares shares = share_cores(of_ranks(3, true), {{4, 5}, {}}, nullptr);
  EXPECT_TRUE(shares.bound.empty());
  EXPECT_TRUE(contains(shares.warning, "2 cores for 3 ranks")) << shares.warning;
}

}  // namespace
