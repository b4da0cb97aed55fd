// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/pause.hpp"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <string>
#include <thread>

#include "rma/mpi/job.hpp"
#include "rma/mpi/log.hpp"
#include "rma/mpi/mailbox.hpp"
#include "rma/mpi/yield.hpp"

namespace sluice::mpi_rma {
namespace {

constexpr int kPlainLooks = 200;
/// For 50 us, where the awaited rank has a core of its own: it may be in a copy, say, and what a yielded core does
/// meanwhile may take milliseconds.
constexpr int kPausedLooks = 400;
/// A long message needs hundreds of calls of MPI's, each of which a busy machine may delay.
constexpr int kLooksForMessages = 8;
/// If ranks outnumber cores, `sched_yield` soon gives the core to the rank that is awaited, or that rank waits too.
constexpr std::chrono::microseconds kYieldingInCrowd{20};
constexpr std::chrono::microseconds kShortest{10};
constexpr std::chrono::microseconds kLongest{300};
constexpr std::chrono::seconds kLook{1};
constexpr std::chrono::seconds kWarning{60};

}  // namespace

void progress(const Ranks& ranks) {
  int flag = 0;
  PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, ranks.comm, &flag, MPI_STATUS_IGNORE);
}

void poll(const Ranks& ranks) {
  serve_mailboxes();
  progress(ranks);
  if (crowded()) sched_yield();
}

Pause::Pause(const Ranks& ranks, std::string_view what)
    : ranks_(ranks), what_(what), rest_(kPlainLooks, crowded() ? rma::Rest::kPaused : kPausedLooks) {}

void Pause::operator()() {
  serve_mailboxes();
  const bool rested = rest_.spin_or_yield(crowded() ? kYieldingInCrowd : base::kYielding);
  if (rested) ++count_;
  if (!rested || (count_ > kPlainLooks && count_ % kLooksForMessages == 0)) progress(ranks_);
  if (rested) return;
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
  ranks_.check_alive();
  if (now < next_warning_) return;
  next_warning_ = now + kWarning;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - begin_).count();
  log(Level::warn, "rank " + std::to_string(ranks_.job->context.rank()) + " has waited for " + std::to_string(seconds) +
                       " s: " + std::string(what_));
}

}  // namespace sluice::mpi_rma
