// SPDX-License-Identifier: Apache-2.0
// A process that sluice-run starts.
#pragma once

#include "base/fd.hpp"
#include "runtime/report.hpp"

#include <sys/types.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sluice::runtime {

/// A child process. If this process ends, the child is killed.
class Child {
 public:
  struct Program {
    std::string name;  ///< for messages
    std::string path;
    std::vector<char*> arguments;          ///< the program's name first; no null at the end
    std::vector<std::string> environment;  ///< in addition to this process's own
    sigset_t blocked;                      ///< the signals that the child blocks
    bool reads_input = true;               ///< this process's standard input; else /dev/null
    std::vector<unsigned long> cores{};    ///< mask of the cores to which the child is bound; empty: it is not
    /// Descriptors that the child inherits besides the standard streams, each after the variable that has its number.
    std::vector<std::pair<std::string, int>> descriptors{};
  };

  /// Starts the program. @throws std::system_error, also if the program cannot be executed
  explicit Child(Program program);
  /// Kills the child if it still runs.
  ~Child();

  const std::string& name() const noexcept { return name_; }
  bool running() const noexcept { return pid_ >= 0; }
  bool is(pid_t pid) const noexcept { return pid_ == pid; }
  void kill(int signal) noexcept;
  /// True if `kill` has sent SIGKILL.
  bool killed() const noexcept { return killed_; }
  bool ignores(int signal) const;
  /// Call once waitpid has returned the child.
  void ended() noexcept { pid_ = -1; }
  /// The report of the child, or of its descendant that is the rank.
  const ProcessReport& report() const noexcept { return report_->process; }
  /// The waits of that process.
  const base::WaitPage& waits() const noexcept { return report_->waits; }

 private:
  std::string name_;
  std::shared_ptr<SharedReport> report_;
  base::Fd held_;   // an end of a pipe, which closes when this process ends: ranks behind a wrapper notice that, too
  pid_t pid_ = -1;  // -1 once the child has ended: the number may be another process's
  bool killed_ = false;
};

/// A child of this process, or a descendant of one.
struct Descendant {
  pid_t pid = -1;
  pid_t parent = -1;
  pid_t child = -1;  ///< the child of this process that is it, or its ancestor
  std::string name;
};

/// All descendants that are no zombies, parents before their children; none if /proc is that of other processes.
std::vector<Descendant> descendants();

/// The path of a program: `name` itself if there is a slash in it, else the first executable of this name in PATH.
/// @throws std::invalid_argument if there is none.
std::string find_program(const std::string& name);

}  // namespace sluice::runtime
