// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace sluice::mpi_rma {

/// Excludes calls of several threads from each other, in a program that has told MPI it has such calls. In others a
/// mutex would take longer than a put. Made while MPI runs.
///
/// A thread that polls takes the mutex again before a sleeping one has woken. After so many times it waits until
/// another thread has had the mutex. To hand it over each time would cost two switches of threads a call.
class CallMutex {
 public:
  CallMutex() : CallMutex(several_threads()) {}
  explicit CallMutex(bool needed) : needed_(needed) {}

  static constexpr std::uint32_t kMostBefore = 256;

  /// False: all calls come one after another.
  bool needed() const noexcept { return needed_; }
  void lock() {
    if (!needed_) return;
    const bool may_pass = waiting_.load() == 0 || passed_.load(std::memory_order_relaxed) < kMostBefore;
    if (may_pass && mutex_.try_lock()) {
      if (waiting_.load(std::memory_order_relaxed) != 0) passed_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    waiting_.fetch_add(1);
    mutex_.lock();
    waiting_.fetch_sub(1);
    passed_.store(0, std::memory_order_relaxed);
    served_.fetch_add(1);
  }
  void unlock() {
    if (!needed_) return;
    const bool is_due = passed_.load(std::memory_order_relaxed) >= kMostBefore;
    const std::uint32_t served = served_.load();
    mutex_.unlock();
    if (!is_due) return;
    while (waiting_.load() != 0 && served_.load() == served) sched_yield();
  }
  /// How many threads wait.
  std::uint32_t waiting() const noexcept { return waiting_.load(); }

 private:
  static bool several_threads() {
    int level = MPI_THREAD_MULTIPLE;
    PMPI_Query_thread(&level);
    return level == MPI_THREAD_MULTIPLE;
  }

  std::mutex mutex_;
  std::atomic<std::uint32_t> waiting_{0};
  std::atomic<std::uint32_t> served_{0};  // how many that waited have had the mutex
  std::atomic<std::uint32_t> passed_{0};  // times that others have taken it since
  bool needed_;
};

}  // namespace sluice::mpi_rma
