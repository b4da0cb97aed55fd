// SPDX-License-Identifier: Apache-2.0
// The cgroups of this process (v1 and v2), where the kernel shows them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sluice::base::cgroup {

/// A group that this process is in, or one above it.
struct Group {
  bool v1;
  std::filesystem::path folder;
};

/// Returns all visible groups whose limits for a controller ("memory", "cpu") hold for this process. The mounts are
/// read once, the process's own group each time.
/// @param root  for tests: folder before the paths of /proc and of mounts
std::vector<Group> groups(const std::string& controller, const std::string& root = {});

/// Returns the number at the begin of a file; nothing if there is no such file, or it begins with "max" or a minus.
std::optional<std::uint64_t> number_in(const std::filesystem::path& file);

}  // namespace sluice::base::cgroup
