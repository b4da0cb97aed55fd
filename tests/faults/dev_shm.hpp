// SPDX-License-Identifier: Apache-2.0
// A /dev/shm for one test.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include <cstdlib>

#include "base/fd.hpp"

namespace sluice::test {

/// This process was started as a rank, and runs the test up to the call of its ranks.
inline bool is_a_rank() { return std::getenv("SLUICE_RANK") != nullptr; }

/// This process and its ranks see a /dev/shm of their own, until the end.
class OwnDevShm {
 public:
  explicit OwnDevShm(const char* size)
      : made_(is_a_rank() ||
              (::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               ::mount("own", "/dev/shm", "tmpfs", 0, size) == 0)) {}
  ~OwnDevShm() { ::setns(before_.get(), CLONE_NEWNS); }
  OwnDevShm(const OwnDevShm&) = delete;
  OwnDevShm& operator=(const OwnDevShm&) = delete;
  bool made() const { return made_; }

 private:
  base::Fd before_{::open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC)};
  bool made_ = false;
};

}  // namespace sluice::test
