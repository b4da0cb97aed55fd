// SPDX-License-Identifier: Apache-2.0
// A process that sluice-run starts.
#pragma once

#include "base/fd.hpp"

#include <sys/types.h>

#include <csignal>
#include <span>
#include <string>
#include <vector>

namespace sluice::runtime {

/// How a child ended.
struct Ending {
  int code = 0;             ///< what it returned, or 128 + the signal
  int signal = 0;           ///< that ended it; 0: none
  bool run_called = false;  ///< it called `sluice::run`
  bool lost_peer = false;   ///< and what ended it was the loss of another rank
};

/// A child process. If this process ends, the child is killed.
class Child {
 public:
  struct Program {
    std::string path;
    std::vector<char*> arguments;          ///< the program's name first; no null at the end
    std::vector<std::string> environment;  ///< besides this process's own
    sigset_t blocked;                      ///< the signals that the child blocks
  };

  /// A descriptor for the child.
  struct Gift {
    const char* variable;  ///< which tells the child its number
    int fd;
  };

  /// Starts the program, which inherits the gifts and the standard streams.
  /// @throws std::system_error, also if the program cannot be executed
  Child(const Program& program, std::span<const Gift> gifts);
  Child(Child&&) noexcept = default;
  Child& operator=(Child&&) = delete;
  /// Kills the child if it is still there.
  ~Child();

  /// Becomes readable when the child has ended.
  const base::Fd& ended() const noexcept { return process_; }
  bool running() const noexcept { return bool(process_); }
  void kill(int signal) const noexcept;
  /// Waits for the end of the child.
  Ending reap();

 private:
  base::Fd process_;  // a pidfd: a number that names this process and never another; closed once it is reaped
  base::Fd report_;
  pid_t pid_ = -1;
};

/// The file that `name` means: itself if there is a slash in it, else the first executable one in PATH.
/// @throws std::invalid_argument if there is none.
std::string find_program(const std::string& name);

}  // namespace sluice::runtime
