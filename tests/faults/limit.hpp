// SPDX-License-Identifier: Apache-2.0
// Processes that may have no more of something.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace sluice::test {

/// While it lives, this process has no more of a resource than it uses now, and a little.
class Limit {
 public:
  Limit(decltype(RLIMIT_NOFILE) resource, rlim_t soft) : resource_(resource) {
    ::getrlimit(resource_, &before_);
    const rlimit lowered{std::min(soft, before_.rlim_max), before_.rlim_max};
    ::setrlimit(resource_, &lowered);
  }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
  ~Limit() { ::setrlimit(resource_, &before_); }

 private:
  decltype(RLIMIT_NOFILE) resource_;
  rlimit before_{};
};

/// The lowest number that is free: with a limit of n more than this, n more can be opened.
inline rlim_t next_descriptor() {
  const int next = ::dup(STDIN_FILENO);
  ::close(next);
  return static_cast<rlim_t>(next);
}

}  // namespace sluice::test
