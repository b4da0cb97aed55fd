// SPDX-License-Identifier: Apache-2.0
// Processes that may have no more of something.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/fd.hpp"

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

/// While it lives, this process has no descriptor left but `spare`, and can have none: its limits stay low.
class NoDescriptors {
 public:
  explicit NoDescriptors(std::size_t spare = 0) {
    constexpr rlim_t kLater = 100;
    const rlim_t most = next_descriptor() + kLater;
    const rlimit low{most, most};
    ::setrlimit(RLIMIT_NOFILE, &low);
    while (base::Fd one{::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)}) taken_.push_back(std::move(one));
    taken_.resize(taken_.size() - std::min(spare, taken_.size()));
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  std::vector<base::Fd> taken_;
};

}  // namespace sluice::test
