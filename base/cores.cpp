// SPDX-License-Identifier: Apache-2.0
#include "base/cores.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <utility>

#include "base/cgroup.hpp"

namespace sluice::base {
namespace {

constexpr std::size_t kBits = sizeof(unsigned long) * CHAR_BIT;

/// The kernel refuses a mask that is too small for its cores with EINVAL.
std::vector<int> cores_of_mask() {
  constexpr std::size_t kMostWords = 1 << 16;
  std::vector<unsigned long> words(16);
  while (::syscall(SYS_sched_getaffinity, 0, words.size() * sizeof(unsigned long), words.data()) < 0) {
    if (errno != EINVAL || words.size() >= kMostWords) return {};
    words.resize(2 * words.size());
  }
  std::vector<int> cores;
  for (std::size_t core = 0; core < words.size() * kBits; ++core) {
    if ((words[core / kBits] >> (core % kBits) & 1) != 0) cores.push_back(static_cast<int>(core));
  }
  return cores;
}

/// Sorts hardware threads behind the first of their core. Where the kernel does not tell them, they stay as they are.
void gather_siblings(std::vector<int>& cores, const std::string& root) {
  std::vector<std::pair<int, int>> ordered;
  for (const int core : cores) {
    const std::string file = "/sys/devices/system/cpu/cpu" + std::to_string(core) + "/topology/thread_siblings_list";
    const auto first = cgroup::number_in(root + file);
    ordered.emplace_back(first ? static_cast<int>(*first) : core, core);
  }
  std::ranges::sort(ordered);
  std::ranges::transform(ordered, cores.begin(), [](const auto& one) { return one.second; });
}

/// v2: "cpu.max" has the quota and the period in microseconds, or "max". v1 has a file for each; -1 is no quota.
std::optional<double> quota_of(const cgroup::Group& group) {
  double quota = 0;
  double period = 0;
  if (group.v1) {
    std::ifstream(group.folder / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group.folder / "cpu.cfs_period_us") >> period;
  } else {
    std::ifstream(group.folder / "cpu.max") >> quota >> period;
  }
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

}  // namespace

Cores cores_here(const std::string& root) {
  Cores here{cores_of_mask(), {}};
  gather_siblings(here.mask, root);
  for (const cgroup::Group& group : cgroup::groups("cpu", root)) {
    const auto quota = quota_of(group);
    if (quota) here.quota = std::min(*quota, here.quota.value_or(*quota));
  }
  return here;
}

bool bind_to(const std::vector<unsigned long>& mask) noexcept {
  return ::syscall(SYS_sched_setaffinity, 0, mask.size() * sizeof(unsigned long), mask.data()) == 0;
}

std::vector<unsigned long> mask_of(const std::vector<int>& cores) {
  std::vector<unsigned long> mask;
  for (const int core : cores) {
    const auto bit = static_cast<std::size_t>(core);
    mask.resize(std::max(mask.size(), bit / kBits + 1));
    mask[bit / kBits] |= 1UL << (bit % kBits);
  }
  return mask;
}

}  // namespace sluice::base
