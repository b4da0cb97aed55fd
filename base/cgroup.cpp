// SPDX-License-Identifier: Apache-2.0
#include "base/cgroup.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/text.hpp"

namespace sluice::base::cgroup {
namespace {

namespace fs = std::filesystem;

/// A mounted tree of cgroups.
struct Mount {
  std::string controllers;  ///< of v1, ",cpu,cpuacct,"; empty: v2, which has all
  std::string top;          ///< the group that is mounted
  fs::path at;
};

std::string between_commas(std::string_view controllers) { return "," + std::string(controllers) + ","; }

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
    const bool v2 = right[0] == "cgroup2";
    if (v2 || right[0] == "cgroup")
      found.push_back({v2 ? "" : between_commas(right[2]), std::string(left[3]), root + std::string(left[4])});
  }
  return found;
}

/// Returns this process's group in the mounted tree. Lines "NUMBER:CONTROLLERS:PATH", without controllers in v2.
std::string group_in(const Mount& mount, const std::string& controller, const std::string& root) {
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t begin = std::min(line.find(':'), line.size() - 1) + 1;
    const std::size_t end = line.find(':', begin);
    if (end == std::string::npos) continue;
    const std::string controllers = between_commas(line.substr(begin, end - begin));
    if (mount.controllers.empty() ? controllers == ",," : controllers.find(controller) != std::string::npos)
      return line.substr(end + 1);
  }
  return {};
}

/// Adds the folders of the group and of all visible groups above it.
void add_folders(const Mount& mount, const std::string& path, std::vector<Group>& all) {
  const fs::path group = fs::path(path).lexically_relative(mount.top);
  if (group.empty() || *group.begin() == "..") return;  // of another name space
  const bool v1 = !mount.controllers.empty();
  fs::path folder = mount.at;
  all.push_back({v1, folder});
  for (const fs::path& part : group) {
    if (part != ".") all.push_back({v1, folder /= part});
  }
}

}  // namespace

std::vector<Group> groups(const std::string& controller, const std::string& root) {
  static const std::vector<Mount> here = mounts({});  // read once: that takes longer than the rest
  const std::string name = between_commas(controller);
  std::vector<Group> all;
  for (const Mount& mount : root.empty() ? here : mounts(root)) {
    if (mount.controllers.empty() || mount.controllers.find(name) != std::string::npos)
      add_folders(mount, group_in(mount, name, root), all);
  }
  return all;
}

std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  std::uint64_t number = 0;
  if (std::from_chars(line.data(), line.data() + line.size(), number).ec == std::errc()) return number;
  return std::nullopt;
}

}  // namespace sluice::base::cgroup
