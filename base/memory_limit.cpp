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

#include "base/text.hpp"

namespace sluice::base {
namespace {

namespace fs = std::filesystem;

using Bytes = std::uint64_t;
using Rows = std::map<std::string, Bytes>;

/// Rows of pages that no file backs, with those of segments, of locked pages, and of kernel memory, which v1 does not
/// list. The rows `anon` and `shmem` are not used, because they count locked pages too.
constexpr const char* kNotReclaimable[] = {"inactive_anon", "active_anon", "unevictable", "slab_unreclaimable",
                                           "kernel_stack",  "pagetables",  "percpu",      "sock",
                                           "vmalloc"};

std::optional<Bytes> number_in(const fs::path& file) {
  Bytes number = 0;
  if (std::ifstream(file) >> number) return number;
  return std::nullopt;  // "max", or there is no such file
}

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

/// A mounted tree of cgroups.
struct Mount {
  bool v1;
  std::string top;  ///< the group that is mounted
  fs::path at;
};

/// Lines "ID PARENT DEVICE TOP AT OPTIONS ... - TYPE SOURCE OPTIONS".
std::vector<Mount> mounts(const std::string& root) {
  std::vector<Mount> found;
  std::ifstream in(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    const std::size_t dash = line.find(" - cgroup");
    if (dash == std::string::npos) continue;
    const auto left = words_of(std::string_view(line).substr(0, dash), ' ');
    const auto right = words_of(std::string_view(line).substr(dash + 3), ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    const bool first = right[0] == "cgroup" && std::ranges::count(words_of(right[2]), "memory") > 0;
    if (first || right[0] == "cgroup2") found.push_back({first, std::string(left[3]), root + std::string(left[4])});
  }
  return found;
}

/// Returns this process's group in the mounted tree. Lines "NUMBER:CONTROLLERS:PATH", without controllers in v2.
std::string group_in(const Mount& mount, const std::string& root) {
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t begin = std::min(line.find(':'), line.size() - 1) + 1;
    const std::size_t end = line.find(':', begin);
    if (end == std::string::npos) continue;
    const std::string controllers = "," + line.substr(begin, end - begin) + ",";
    if (mount.v1 ? controllers.find(",memory,") != std::string::npos : controllers == ",,") return line.substr(end + 1);
  }
  return {};
}

/// Returns the folders of the group and of all visible groups above it.
std::vector<fs::path> folders(const Mount& mount, const std::string& root) {
  const fs::path group = fs::path(group_in(mount, root)).lexically_relative(mount.top);
  std::vector<fs::path> all;
  if (group.empty() || *group.begin() == "..") return all;  // of another name space
  all.push_back(mount.at);
  for (const fs::path& part : group) {
    if (part != ".") all.push_back(all.back() / part);
  }
  return all;
}

/// Returns how many bytes of the group can still be swapped out.
Bytes swap_left(const fs::path& folder, const Mount& mount, Bytes limit, const std::string& root) {
  Rows memory = rows_of(root + "/proc/meminfo");
  const Bytes free = memory["SwapFree:"] * 1024;
  if (mount.v1) {
    const Bytes with_swap = number_in(folder / "memory.memsw.limit_in_bytes").value_or(limit + free);
    return std::min(free, with_swap - std::min(with_swap, limit));
  }
  const auto most = number_in(folder / "memory.swap.max");
  const Bytes used = number_in(folder / "memory.swap.current").value_or(0);
  return most ? std::min(free, *most - std::min(*most, used)) : free;
}

std::string why_not_in(const fs::path& folder, const Mount& mount, Bytes bytes, const std::string& root) {
  const char* const name = mount.v1 ? "memory.limit_in_bytes" : "memory.max";
  const auto limit = number_in(folder / name);
  constexpr Bytes kUnlimited = std::numeric_limits<std::int64_t>::max() / 2;
  if (!limit || *limit > kUnlimited) return {};
  Rows rows = rows_of(folder / "memory.stat");
  if (rows.empty()) return {};
  Bytes used = 0;
  // Rows of v1 with the prefix count the groups below too.
  for (const char* const row : kNotReclaimable) used += rows[(mount.v1 ? "total_" : "") + std::string(row)];
  const Bytes tables = bytes / 128;  // of pages, which the kernel counts too
  if (used + bytes + tables <= *limit + swap_left(folder, mount, *limit, root)) return {};
  return "the limit of " + folder.string() + " is " + std::to_string(*limit) + " bytes (" + name + "), of which " +
         std::to_string(used) + " are in use and cannot be reclaimed";
}

}  // namespace

std::string why_no_memory(std::size_t bytes, const std::string& root) {
  static const std::vector<Mount> here = mounts({});  // read once: that takes longer than the rest
  for (const Mount& mount : root.empty() ? here : mounts(root)) {
    for (const fs::path& folder : folders(mount, root)) {
      std::string why = why_not_in(folder, mount, bytes, root);
      if (!why.empty()) return why;
    }
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
