// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <mutex>

namespace sluice::mpi_rma {

/// Excludes calls of several threads from each other, in a program that has told MPI it has such calls. In others a
/// mutex would take longer than a put. Made while MPI runs.
class CallMutex {
 public:
  CallMutex() {
    int level = MPI_THREAD_MULTIPLE;
    PMPI_Query_thread(&level);
    needed_ = level == MPI_THREAD_MULTIPLE;
  }

  /// False: all calls come one after another.
  bool needed() const noexcept { return needed_; }
  void lock() {
    if (needed_) mutex_.lock();
  }
  void unlock() {
    if (needed_) mutex_.unlock();
  }

 private:
  std::mutex mutex_;
  bool needed_;
};

}  // namespace sluice::mpi_rma
