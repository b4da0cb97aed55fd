// SPDX-License-Identifier: Apache-2.0
#include "base/memory_limit.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/cgroup.hpp"
#include "base/text.hpp"

namespace sluice::base {
namespace {

namespace fs = std::filesystem;

using Bytes = std::uint64_t;
using cgroup::Group;
using cgroup::groups;
using cgroup::number_in;
using Rows = std::map<std::string, Bytes>;

/// Rows of pages that no file backs, with those of segments, of locked pages, and of kernel memory, which v1 does not
/// list. The rows `anon` and `shmem` are not used, because they count locked pages too.
constexpr const char* kNotReclaimable[] = {"inactive_anon", "active_anon", "unevictable", "slab_unreclaimable",
                                           "kernel_stack",  "pagetables",  "percpu",      "sock",
                                           "vmalloc"};

/// Rows of a name and a number, with a colon and a unit or without.
Rows rows_of(const fs::path& file) {
  Rows rows;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const auto words = words_of(line, ' ');
    Bytes number = 0;
    if (words.size() < 2) continue;
    const auto read = std::from_chars(words[1].data(), words[1].data() + words[1].size(), number);
    if (read.ec == std::errc()) rows[std::string(words[0])] = number;
  }
  return rows;
}

/// Returns how many bytes of the group can still be swapped out.
Bytes swap_left(const Group& group, Bytes limit, const std::string& root) {
  Rows memory = rows_of(root + "/proc/meminfo");
  const Bytes free = memory["SwapFree:"] * 1024;
  if (group.v1) {
    const Bytes with_swap = number_in(group.folder / "memory.memsw.limit_in_bytes").value_or(limit + free);
    return std::min(free, with_swap - std::min(with_swap, limit));
  }
  const auto most = number_in(group.folder / "memory.swap.max");
  const Bytes used = number_in(group.folder / "memory.swap.current").value_or(0);
  return most ? std::min(free, *most - std::min(*most, used)) : free;
}

std::string why_not_in(const Group& group, Bytes bytes, const std::string& root) {
  const char* const name = group.v1 ? "memory.limit_in_bytes" : "memory.max";
  const auto limit = number_in(group.folder / name);
  constexpr Bytes kUnlimited = std::numeric_limits<std::int64_t>::max() / 2;
  if (!limit || *limit > kUnlimited) return {};
  Rows rows = rows_of(group.folder / "memory.stat");
  if (rows.empty()) return {};
  Bytes used = 0;
  // Rows of v1 with the prefix count the groups below too.
  for (const char* const row : kNotReclaimable) used += rows[(group.v1 ? "total_" : "") + std::string(row)];
  const Bytes tables = bytes / 128;  // of pages, which the kernel counts too
  if (used + bytes + tables <= *limit + swap_left(group, *limit, root)) return {};
  return "the limit of " + group.folder.string() + " is " + std::to_string(*limit) + " bytes (" + name +
         "), of which " + std::to_string(used) + " are in use and cannot be reclaimed";
}

}  // namespace

std::string why_no_memory(std::size_t bytes, const std::string& root) {
  for (const Group& group : groups("memory", root)) {
    std::string why = why_not_in(group, bytes, root);
    if (!why.empty()) return why;
  }
  return {};
}

std::string why_no_file(std::size_t bytes) {
  rlimit most{};
  if (::getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY || bytes <= most.rlim_cur) return {};
  return "shared memory is a file, and this process may have none of more than " + std::to_string(most.rlim_cur) +
         " bytes (ulimit -f)";
}

}  // namespace sluice::base
