// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/epochs.hpp"

#include <algorithm>
#include <string>

#include "rma/mpi/pause.hpp"
#include "rma/mpi/refused.hpp"
#include "rma/mpi/rma_window.hpp"

namespace sluice::mpi_rma {
namespace {

// The words of a rank.
constexpr std::size_t kAccumulate = Epochs::kPartWords;         // of each stripe, 1: a rank changes elements of it
constexpr std::size_t kLocal = kAccumulate + Epochs::kStripes;  // kExclusive, or the number of shared locks
// Of rank 0: how many hold lock_all, and kOneExclusive for each exclusive lock.
constexpr std::size_t kGlobal = kLocal + 1;
constexpr std::size_t kCompleted = kGlobal + 1;  // how many access epochs of peers have completed, since the beginning
constexpr std::size_t kMeeting = kCompleted + 1;
constexpr std::size_t kPosted = kMeeting + Meeting::kWords;  // for each rank, how often it has posted to this one

constexpr std::uint64_t kExclusive = std::uint64_t{1} << 62;
constexpr std::uint64_t kOneExclusive = std::uint64_t{1} << 32;

std::uint64_t minus(std::uint64_t value) { return 0 - value; }

[[noreturn]] void refuse(std::string_view call, std::string_view why) {
  throw Refused(MPI_ERR_RMA_SYNC, std::string(call) + ": " + std::string(why));
}

}  // namespace

Epochs::Epochs(RmaWindow& window) : window_(window), meeting_(window.job->control, kMeeting) {}

std::size_t Epochs::words(int ranks) { return kPosted + static_cast<std::size_t>(ranks); }

std::uint64_t Epochs::add(int rank, std::size_t word, std::uint64_t value) {
  const Part& part = window_.parts[static_cast<std::size_t>(rank)];
  return window_.job->control.fetch_add(part.rank, part.place, word, value);
}

std::uint64_t Epochs::own(std::size_t word) const {
  return window_.job->control.look(window_.parts[static_cast<std::size_t>(window_.rank)].place, word);
}

template <class Ready>
void Epochs::await(Lock& lock, std::string_view what, Ready ready) {
  if (ready()) return;
  Pause pause(window_.job->context, window_.comm, what);
  do {
    lock.unlock();
    try {
      pause();
    } catch (...) {
      lock.lock();
      throw;
    }
    lock.lock();
  } while (!ready());
}

void Epochs::check_access(int rank) {
  switch (access_) {
    case Access::lock_all: return;
    case Access::lock:
      if (held_.contains(rank)) return;
      break;
    case Access::start:
      if (std::ranges::count(targets_, rank) > 0) return;
      break;
    case Access::fence: fence_used_ = true; return;
    case Access::none: break;
  }
  refuse("an access", "no epoch of this rank permits an access to rank " + std::to_string(rank));
}

void Epochs::check_locked(int rank) const {
  if (access_ == Access::lock_all || (access_ == Access::lock && (rank < 0 || held_.contains(rank)))) return;
  refuse("a flush", rank < 0 ? "no rank is locked" : "rank " + std::to_string(rank) + " is not locked");
}

void Epochs::check_idle() const {
  const bool open = access_ == Access::start || access_ == Access::lock || access_ == Access::lock_all;
  if (open || exposure_ == Exposure::post) refuse("the call", "an epoch is open");
}

/// A fence opens an epoch that is none if nothing was accessed since.
void Epochs::leave_fence(std::string_view call) {
  if (access_ == Access::fence && fence_used_) refuse(call, "an epoch that a fence has opened was used");
  if (access_ == Access::fence) access_ = Access::none;
}

void Epochs::barrier(Lock& lock) {
  const auto member = [&](int i) {
    const Part& part = window_.parts[static_cast<std::size_t>(i)];
    return Member{part.rank, part.place};
  };
  meeting_.meet(window_.rank, window_.size, member,
                [&](auto ready) { await(lock, "for all ranks of a window, in a fence or MPI_Win_free", ready); });
}

void Epochs::fence(Lock& lock, int assertion) {
  check_idle();
  window_.areas->drain_all();
  barrier(lock);
  const bool over = (assertion & MPI_MODE_NOSUCCEED) != 0;
  access_ = over ? Access::none : Access::fence;
  exposure_ = over ? Exposure::none : Exposure::fence;
  fence_used_ = false;
}

void Epochs::post(const std::vector<int>& origins) {
  if (exposure_ == Exposure::post) refuse("MPI_Win_post", "an exposure epoch is open");
  exposure_ = Exposure::post;
  completions_ += origins.size();
  const std::size_t word = kPosted + static_cast<std::size_t>(window_.rank);
  for (const int origin : origins) add(origin, word, 1);
}

void Epochs::start(Lock& lock, const std::vector<int>& targets) {
  leave_fence("MPI_Win_start");
  if (access_ != Access::none) refuse("MPI_Win_start", "an access epoch is open");
  access_ = Access::start;
  targets_ = targets;
  for (const int target : targets) {
    const std::uint64_t turn = ++started_[target];
    await(lock, "for MPI_Win_post of a rank, in MPI_Win_start",
          [&, turn] { return own(kPosted + static_cast<std::size_t>(target)) >= turn; });
  }
}

void Epochs::complete() {
  if (access_ != Access::start) refuse("MPI_Win_complete", "there was no MPI_Win_start");
  for (const int target : targets_) {
    window_.areas->drain(target);
    add(target, kCompleted, 1);
  }
  access_ = Access::none;
  targets_.clear();
}

bool Epochs::exposed() const { return own(kCompleted) < completions_; }

void Epochs::wait(Lock& lock) {
  if (exposure_ != Exposure::post) refuse("MPI_Win_wait", "there was no MPI_Win_post");
  await(lock, "for MPI_Win_complete of ranks, in MPI_Win_wait", [&] { return !exposed(); });
  exposure_ = Exposure::none;
}

bool Epochs::test() {
  if (exposure_ != Exposure::post) refuse("MPI_Win_test", "there was no MPI_Win_post");
  if (exposed()) return false;
  exposure_ = Exposure::none;
  return true;
}

void Epochs::lock(Lock& lock, int type, int rank, int assertion) {
  leave_fence("MPI_Win_lock");
  if (access_ != Access::none && access_ != Access::lock) refuse("MPI_Win_lock", "another access epoch is open");
  if (held_.contains(rank)) refuse("MPI_Win_lock", "rank " + std::to_string(rank) + " is locked already");
  const bool checked = (assertion & MPI_MODE_NOCHECK) == 0;
  access_ = Access::lock;
  held_[rank] = {type, checked};
  if (!checked) return;
  if (type == MPI_LOCK_SHARED) {
    return await(lock, "for a shared lock", [&] {
      if (add(rank, kLocal, 1) < kExclusive) return true;
      add(rank, kLocal, minus(1));
      return false;
    });
  }
  await(lock, "for ranks that have locked all, in MPI_Win_lock", [&] {
    if ((add(0, kGlobal, kOneExclusive) & (kOneExclusive - 1)) == 0) return true;
    add(0, kGlobal, minus(kOneExclusive));
    return false;
  });
  const Part& part = window_.parts[static_cast<std::size_t>(rank)];
  await(lock, "for an exclusive lock",
        [&] { return window_.job->control.compare_swap(part.rank, part.place, kLocal, 0, kExclusive) == 0; });
}

void Epochs::unlock(int rank) {
  const auto found = held_.find(rank);
  if (access_ != Access::lock || found == held_.end())
    refuse("MPI_Win_unlock", "rank " + std::to_string(rank) + " is not locked");
  window_.areas->drain(rank);
  const Held held = found->second;
  held_.erase(found);
  if (held_.empty()) access_ = Access::none;
  if (!held.checked) return;
  const bool shared = held.type == MPI_LOCK_SHARED;
  add(rank, kLocal, minus(shared ? 1 : kExclusive));
  if (!shared) add(0, kGlobal, minus(kOneExclusive));
}

void Epochs::lock_all(Lock& lock, int assertion) {
  leave_fence("MPI_Win_lock_all");
  if (access_ != Access::none) refuse("MPI_Win_lock_all", "another access epoch is open");
  access_ = Access::lock_all;
  all_checked_ = (assertion & MPI_MODE_NOCHECK) == 0;
  if (!all_checked_) return;
  await(lock, "for exclusive locks, in MPI_Win_lock_all", [&] {
    if (add(0, kGlobal, 1) < kOneExclusive) return true;
    add(0, kGlobal, minus(1));
    return false;
  });
}

void Epochs::unlock_all() {
  if (access_ != Access::lock_all) refuse("MPI_Win_unlock_all", "there was no MPI_Win_lock_all");
  window_.areas->drain_all();
  access_ = Access::none;
  if (all_checked_) add(0, kGlobal, minus(1));
}

void Epochs::begin_accumulate(Lock& lock, int rank, std::size_t stripe) {
  const Part& part = window_.parts[static_cast<std::size_t>(rank)];
  Control& control = window_.job->control;
  await(lock, "for another accumulate at a rank",
        [&] { return control.compare_swap(part.rank, part.place, kAccumulate + stripe, 0, 1) == 0; });
}

void Epochs::end_accumulate(int rank, std::size_t stripe) {
  const Part& part = window_.parts[static_cast<std::size_t>(rank)];
  window_.job->control.swap(part.rank, part.place, kAccumulate + stripe, 0);
}

}  // namespace sluice::mpi_rma
