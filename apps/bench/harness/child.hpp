// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace bench {

/// A process that answers lines with lines, on its standard input and output.
class Child {
 public:
  /// @throws std::system_error if it cannot be started.
  explicit Child(const std::vector<std::string>& command);
  /// Lets it end, and ends it if it does not.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void tell(const std::string& line) const;
  /// @throws std::runtime_error if it has ended, or says nothing for half a minute.
  std::string hear();

 private:
  /// How it has ended, or is made to end.
  std::string end();

  pid_t process_ = -1;  // none: it has ended
  int socket_ = -1;
  std::string heard_;  // and not yet returned
};

}  // namespace bench
