// SPDX-License-Identifier: Apache-2.0
// Folders that stand for /proc, /sys and for what is mounted.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace sluice::tests {

/// A machine as this process sees it.
class Machine {
 public:
  /// @param mounts  /proc/self/mountinfo
  /// @param groups  /proc/self/cgroup
  Machine(const std::string& mounts, const std::string& groups) {
    write("proc/self/mountinfo", mounts);
    write("proc/self/cgroup", groups);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() { std::filesystem::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_ = std::filesystem::temp_directory_path() / ("machine." + std::to_string(::getpid()));
};

}  // namespace sluice::tests
