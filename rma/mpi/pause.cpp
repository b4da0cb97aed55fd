// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/pause.hpp"

#include <sluice/context.hpp>

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "rma/mpi/log.hpp"

namespace sluice::mpi_rma {
namespace {

constexpr int kSpins = 100;
constexpr int kYields = 20;
constexpr std::chrono::microseconds kShortest{10};
constexpr std::chrono::microseconds kLongest{300};
constexpr std::chrono::seconds kLook{1};
constexpr std::chrono::seconds kWarning{60};

}  // namespace

void Pause::operator()() {
  const int step = count_++;
  if (step < kSpins) return std::atomic_signal_fence(std::memory_order_seq_cst);
  int flag = 0;
  // A long message needs hundreds of these calls, each of which a busy machine may delay.
  if (step % 4 == 0 || step >= kSpins + kYields)
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &flag, MPI_STATUS_IGNORE);
  if (step < kSpins + kYields) {
    sched_yield();
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (begin_ == std::chrono::steady_clock::time_point{}) {
    begin_ = now;
    next_look_ = now + kLook;
    next_warning_ = now + kWarning;
  }
  if (now >= next_look_) look_around();
  std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>((now - begin_) / 16, kShortest, kLongest));
}

void Pause::look_around() {
  const auto now = std::chrono::steady_clock::now();
  next_look_ = now + kLook;
  context_.check();
  if (now < next_warning_) return;
  next_warning_ = now + kWarning;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - begin_).count();
  log(Level::warn, "rank " + std::to_string(context_.rank()) + " has waited for " + std::to_string(seconds) +
                       " s: " + std::string(what_));
}

}  // namespace sluice::mpi_rma
