// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace bench {

/// A process that reads lines on its standard input and answers with lines on its standard output.
class Child {
 public:
  /// Starts `command`, a path and its arguments. @throws std::system_error
  explicit Child(const std::vector<std::string>& command);
  /// Closes the process's input, gives it 5 seconds to end, and then kills it.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void write_line(const std::string& line) const;
  /// @throws std::runtime_error if the process has ended, or sends nothing for 30 seconds
  std::string read_line();

 private:
  /// Kills the process if it still runs. Returns how it has ended, for people.
  std::string end();

  pid_t process_ = -1;  // -1: the process was waited for
  int socket_ = -1;
  std::string received_;  // bytes that no read_line has returned yet
};

}  // namespace bench
