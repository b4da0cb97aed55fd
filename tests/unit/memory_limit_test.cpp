// SPDX-License-Identifier: Apache-2.0
// Limits of cgroups, in folders that stand for /proc and for what is mounted.
#include "base/memory_limit.hpp"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/machine.hpp"
#include "tests/unit/program.hpp"

namespace {

namespace fs = std::filesystem;

using sluice::base::why_no_memory;
using sluice::tests::contains;

constexpr std::size_t kMiB = 1 << 20;
constexpr const char* kSecond = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kFirst =
    "40 31 0:39 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";

/// A machine without swap.
class MemoryMachine : public sluice::tests::Machine {
 public:
  MemoryMachine(const std::string& mounts, const std::string& groups) : Machine(mounts, groups) {
    write("proc/meminfo", "MemTotal: 1000000 kB\nSwapFree: 0 kB\n");
  }
  std::string why_not(std::size_t bytes) const { return why_no_memory(bytes, root()); }
};

std::string stat_of(std::size_t anon, std::size_t file, std::size_t unevictable, std::size_t kernel) {
  return "anon " + std::to_string(anon + unevictable) + "\nfile " + std::to_string(file) +
         "\ninactive_anon 0\nactive_anon " + std::to_string(anon) + "\ninactive_file " + std::to_string(file) +
         "\nactive_file 0\nunevictable " + std::to_string(unevictable) + "\nslab_reclaimable " + std::to_string(kMiB) +
         "\nkernel_stack " + std::to_string(kernel) + "\n";
}

TEST(MemoryLimits, of_the_group_are_told_with_what_is_in_use) {
  const MemoryMachine machine(kSecond, "0::/job/step\n");
  machine.write("sys/fs/cgroup/job/step/memory.max", "104857600\n");
  machine.write("sys/fs/cgroup/job/step/memory.stat", stat_of(40 * kMiB, 0, 0, 0));
  EXPECT_EQ(machine.why_not(50 * kMiB), "");
  const std::string why = machine.why_not(70 * kMiB);
  EXPECT_TRUE(contains(why, "104857600")) << why;
  EXPECT_TRUE(contains(why, "41943040")) << why;
  EXPECT_TRUE(contains(why, "/job/step")) << why;
}

TEST(MemoryLimits, of_a_group_above_count_too) {
  const MemoryMachine machine(kSecond, "0::/job/step\n");
  machine.write("sys/fs/cgroup/job/step/memory.max", "max\n");
  machine.write("sys/fs/cgroup/job/step/memory.stat", stat_of(0, 0, 0, 0));
  machine.write("sys/fs/cgroup/job/memory.max", "104857600\n");
  machine.write("sys/fs/cgroup/job/memory.stat", stat_of(90 * kMiB, 0, 0, 0));
  EXPECT_EQ(machine.why_not(5 * kMiB), "");
  EXPECT_TRUE(contains(machine.why_not(20 * kMiB), "104857600"));
}

/// As in a container that sees its own group alone.
TEST(MemoryLimits, of_what_is_mounted_count_too) {
  const MemoryMachine machine(kSecond, "0::/\n");
  machine.write("sys/fs/cgroup/memory.max", "104857600\n");
  machine.write("sys/fs/cgroup/memory.stat", stat_of(0, 0, 0, 0));
  EXPECT_EQ(machine.why_not(90 * kMiB), "");
  EXPECT_NE(machine.why_not(110 * kMiB), "");
}

TEST(MemoryLimits, allow_what_the_page_cache_has) {
  const MemoryMachine machine(kSecond, "0::/job\n");
  machine.write("sys/fs/cgroup/job/memory.max", "104857600\n");
  machine.write("sys/fs/cgroup/job/memory.current", "104857600\n");
  machine.write("sys/fs/cgroup/job/memory.stat", stat_of(0, 100 * kMiB, 0, 0));
  EXPECT_EQ(machine.why_not(90 * kMiB), "");
}

TEST(MemoryLimits, count_what_is_locked_once_and_what_the_kernel_cannot_give_back) {
  const MemoryMachine machine(kSecond, "0::/job\n");
  machine.write("sys/fs/cgroup/job/memory.max", "104857600\n");
  machine.write("sys/fs/cgroup/job/memory.stat", stat_of(0, 0, 40 * kMiB, 20 * kMiB));
  EXPECT_EQ(machine.why_not(35 * kMiB), "");
  EXPECT_NE(machine.why_not(45 * kMiB), "");
}

TEST(MemoryLimits, allow_what_can_be_swapped_out) {
  const MemoryMachine machine(kSecond, "0::/job\n");
  machine.write("sys/fs/cgroup/job/memory.max", "104857600\n");
  machine.write("sys/fs/cgroup/job/memory.stat", stat_of(90 * kMiB, 0, 0, 0));
  machine.write("proc/meminfo", "SwapFree: 102400 kB\n");
  EXPECT_EQ(machine.why_not(90 * kMiB), "");
  machine.write("sys/fs/cgroup/job/memory.swap.max", "0\n");
  EXPECT_NE(machine.why_not(90 * kMiB), "");
}

/// The container's group is mounted, so its path is longer in /proc/self/cgroup than below the mount.
TEST(MemoryLimits, of_the_first_generation_are_heeded) {
  const MemoryMachine machine(kFirst, "8:pids:/other\n4:cpu,memory:/docker/abc/job\n0::/\n");
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");
  machine.write("sys/fs/cgroup/memory/memory.stat", "active_anon 0\ntotal_active_anon 94371840\n");
  machine.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  machine.write("sys/fs/cgroup/memory/job/memory.stat", "total_active_anon 94371840\n");
  EXPECT_EQ(machine.why_not(5 * kMiB), "");
  EXPECT_NE(machine.why_not(20 * kMiB), "");
}

TEST(MemoryLimits, that_cannot_be_read_refuse_nothing) {
  const MemoryMachine nothing(kSecond, "0::/job\n");
  EXPECT_EQ(nothing.why_not(1 << 30), "");
  nothing.write("sys/fs/cgroup/job/memory.max", "104857600\n");  // and no memory.stat
  EXPECT_EQ(nothing.why_not(1 << 30), "");
  const MemoryMachine outside(kSecond, "0::/../../elsewhere\n");
  outside.write("sys/fs/cgroup/memory.max", "104857600\n");
  outside.write("sys/fs/cgroup/memory.stat", stat_of(0, 0, 0, 0));
  EXPECT_EQ(outside.why_not(1 << 30), "");
  EXPECT_EQ(why_no_memory(1 << 30, "/nowhere"), "");
}

TEST(MemoryLimits, of_files_are_told) {
  EXPECT_EQ(sluice::base::why_no_file(kMiB), "");
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{kMiB, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_EQ(sluice::base::why_no_file(kMiB), "");
  EXPECT_TRUE(contains(sluice::base::why_no_file(kMiB + 1), "1048576 bytes (ulimit -f)"));
  ::setrlimit(RLIMIT_FSIZE, &before);
}

}  // namespace
