// SPDX-License-Identifier: Apache-2.0
// `sluice-run --status PID`: one sluice-run asks another one, of the same user, for its table of waits.
#pragma once

#include "base/fd.hpp"

#include <sys/types.h>

#include <functional>
#include <string>

namespace sluice::runtime {

/// Listens for other processes that ask this one. The socket's name is abstract, and ends with this process.
class StatusServer {
 public:
  /// Without a descriptor it answers no process.
  StatusServer();

  /// Readable when a process asks.
  const base::Fd& socket() const noexcept { return socket_; }
  /// Sends `text()` to each process that asks, if its user is this one's or root.
  void answer(const std::function<std::string()>& text) const;

 private:
  base::Fd socket_;
};

/// Returns the answer of the sluice-run that is process `launcher`.
/// @throws std::invalid_argument if there is none, std::runtime_error if it does not answer
std::string ask_status(pid_t launcher);

}  // namespace sluice::runtime
