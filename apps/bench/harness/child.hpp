// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace bench {

/// A process that reads lines on its standard input and answers with lines on its standard output.
class Child {
 public:
  /// @throws std::system_error if it cannot be started.
  explicit Child(const std::vector<std::string>& command);
  /// Gives the process time to end, and kills it if it does not.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void write_line(const std::string& line) const;
  /// @throws std::runtime_error if the process has ended, or sends nothing for half a minute.
  std::string read_line();

 private:
  /// Ends the process if it still runs, and returns how it has ended.
  std::string end();

  pid_t process_ = -1;  // -1: it has ended
  int socket_ = -1;
  std::string received_;  // received, and not yet returned
};

}  // namespace bench
