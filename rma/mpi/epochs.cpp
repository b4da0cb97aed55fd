// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/epochs.hpp"

#include <exception>
#include <span>
#include <string>

#include "rma/mpi/log.hpp"
#include "rma/mpi/pause.hpp"
#include "rma/mpi/refused.hpp"
#include "rma/mpi/rma_window.hpp"

namespace sluice::mpi_rma {
namespace {

[[noreturn]] void refuse(std::string_view call, std::string_view why) {
  throw Refused(MPI_ERR_RMA_SYNC, std::string(call) + ": " + std::string(why));
}

/// A wait for a turn looks at its word so often before it checks whether the holder has died.
constexpr int kLooksAtTurn = 1000;

std::string of_rank(int rank) { return "rank " + std::to_string(rank); }

bool checked(int assertion) { return (assertion & MPI_MODE_NOCHECK) == 0; }

CollectiveWindow::Lock lock_type(int type) {
  return type == MPI_LOCK_SHARED ? CollectiveWindow::Lock::shared : CollectiveWindow::Lock::exclusive;
}

}  // namespace

/// A `Call` of rma::Epochs. All signals are words, since a window that opens channels would cost too much.
class Epochs::Call {
 public:
  Call(Epochs& epochs, Lock& lock) : epochs_(epochs), window_(epochs.window_), lock_(lock) {}

  static constexpr bool kRepeats = false;
  int size() const { return window_.size; }
  void reach(Rank) const {}
  std::uint64_t add(Rank rank, std::size_t offset, std::uint64_t value) { return add_to(rank, word(offset), value); }
  bool maps(Rank rank) { return window_.job->control.maps(part_of(rank).rank, part_of(rank).place); }
  void subtract_later(Rank rank, std::size_t offset, std::uint64_t lock) { add_to(rank, word(offset), 0 - lock); }
  void compare_swap(std::span<rma::Mark> marks, std::uint64_t value, auto made) {
    for (rma::Mark& mark : marks)
      if (change_zero(mark.origin, word(mark.place), value) == 0) made(mark);
  }
  /// The word before.
  std::uint64_t change_zero(Rank rank, std::size_t word, std::uint64_t value) {
    const Part& part = part_of(rank);
    return window_.job->control.compare_swap(part.rank, part.place, word, 0, value);
  }
  /// @throws Error, in each call, if the rank has died
  void check_alive(Rank rank) { window_.job->control.check_alive(part_of(rank).rank, part_of(rank).place); }
  std::atomic_ref<std::uint64_t> own(std::size_t offset) const { return std::atomic_ref(epochs_.own_[word(offset)]); }

  void await(Rank, std::string_view what, auto ready) {
    Pause pause(*window_.ranks, what);
    do {
      lock_.unlock();
      try {
        pause();
      } catch (...) {
        lock_.lock();
        throw;
      }
      lock_.lock();
    } while (!ready());
  }

  void flush(Rank rank) { window_.areas->drain(rank); }
  void flush_all() { window_.areas->drain_all(); }
  void meet() { epochs_.barrier(lock_); }

  bool signal_post(Rank) const { return false; }
  bool take_post(Rank) const { return false; }
  void met_origin(Rank) const {}
  void met_target(Rank) const {}
  void signal_complete(Rank target) { add_to(target, kCompleted, 1); }
  bool take_complete_now(Rank) {
    const bool here = std::atomic_ref(epochs_.own_[kCompleted]).load() > epochs_.completions_;
    if (here) ++epochs_.completions_;
    return here;
  }
  void take_complete(Rank origin) {
    const auto taken = [&] { return take_complete_now(origin); };
    if (!taken()) await(origin, "an origin has not called MPI_Win_complete", taken);
  }

  [[noreturn]] void misuse(const std::string& what, Rank rank = -1) const {
    throw Refused(MPI_ERR_RMA_SYNC, rank < 0 ? what : what + ": " + of_rank(rank));
  }

 private:
  static std::size_t word(std::size_t offset) { return kEpochs + offset / rma::kWord; }
  const Part& part_of(Rank rank) const { return window_.parts[static_cast<std::size_t>(rank)]; }
  std::uint64_t add_to(Rank rank, std::size_t word, std::uint64_t value) {
    const Part& part = part_of(rank);
    return window_.job->control.fetch_add(part.rank, part.place, word, value);
  }

  Epochs& epochs_;
  RmaWindow& window_;
  Lock& lock_;
};

Epochs::Epochs(RmaWindow& window)
    : window_(window), own_(window.job->control.own(window.parts[static_cast<std::size_t>(window.rank)].place)),
      epochs_(window.rank, window.size), meeting_(window.job->control, kMeeting, window.rank, window.size) {}

void Epochs::check_access(int rank) {
  if (!permits(rank)) refuse("an access", "no epoch of this rank permits an access to " + of_rank(rank));
}

void Epochs::check_locked(int rank) const {
  if (epochs_.locks(rank)) return;
  refuse("a flush", rank < 0 ? "no rank is locked" : of_rank(rank) + " is not locked");
}

void Epochs::check_idle() const {
  if (!broken_ && epochs_.open(true) != nullptr) refuse("the call", "an epoch is open");
}

/// A fence opens an epoch that is none if nothing was accessed since.
void Epochs::leave_fence(std::string_view call) {
  if (in_fence_ && fence_used_) refuse(call, "an epoch that a fence has opened was used");
  in_fence_ = false;
}

void Epochs::barrier(Lock& lock) {
  const auto member = [&](int i) {
    const Part& part = window_.parts[static_cast<std::size_t>(i)];
    return Member{part.rank, part.place};
  };
  meeting_.meet(member, [&](auto ready) {
    if (!ready()) Call(*this, lock).await(-1, "for all ranks of a window, in a fence or MPI_Win_free", ready);
  });
}

void Epochs::call(Lock& lock, auto work) {
  try {
    Call call(*this, lock);
    work(call);
  } catch (const Error& error) {
    broken_ |= error.code() != Code::timeout;
    throw;
  }
}

void Epochs::fence(Lock& lock, int assertion) {
  const auto passed = [&] {
    in_fence_ = (assertion & MPI_MODE_NOSUCCEED) == 0;
    fence_used_ = false;
  };
  try {
    call(lock, [&](Call& its) { epochs_.fence(its); });
  } catch (const Refused&) {
    throw;
  } catch (...) {
    passed();  // the peers have gone on
    throw;
  }
  passed();
}

void Epochs::post(Lock& lock, const std::vector<int>& origins) {
  call(lock, [&](Call& its) { epochs_.post(its, origins); });
}

void Epochs::start(Lock& lock, const std::vector<int>& targets) {
  leave_fence("MPI_Win_start");
  call(lock, [&](Call& its) { epochs_.start(its, targets); });
}

void Epochs::complete(Lock& lock) {
  call(lock, [&](Call& its) { epochs_.complete(its); });
}

void Epochs::wait(Lock& lock) {
  call(lock, [&](Call& its) { epochs_.wait(its); });
}

bool Epochs::test(Lock& lock) {
  bool done = false;
  call(lock, [&](Call& its) { done = epochs_.test(its); });
  return done;
}

void Epochs::lock(Lock& lock, int type, int rank, int assertion) {
  leave_fence("MPI_Win_lock");
  call(lock, [&](Call& its) { epochs_.lock(its, rank, lock_type(type), checked(assertion)); });
}

void Epochs::unlock(Lock& lock, int rank) {
  call(lock, [&](Call& its) { epochs_.unlock(its, rank); });
}

/// Finds the words of rank 0, for the short ways of rma::Locks.
class Epochs::MastersNow {
 public:
  explicit MastersNow(const Epochs& epochs) : epochs_(epochs) {}
  const detail::MappedWords* operator()() {
    words_ = epochs_.words_now(rma::Locks::kMaster);
    return words_.exist() ? &words_ : nullptr;
  }

 private:
  const Epochs& epochs_;
  detail::MappedWords words_;
};

detail::MappedWords Epochs::words_now(int rank) const {
  const Part& part = window_.parts[static_cast<std::size_t>(rank)];
  return window_.job->control.words_now(part.rank, part.place, kEpochs);
}

bool Epochs::lock_now(int type, int rank, int assertion) {
  rma::Locks* const locks = epochs_.locks_now();
  if (locks == nullptr || in_fence_) return false;
  if (!checked(assertion)) return locks->lock_uncounted_now(rank);
  const detail::MappedWords words = words_now(rank);
  return words.exist() && locks->lock_now(words, MastersNow(*this), rank, lock_type(type));
}

bool Epochs::unlock_now(int rank) {
  rma::Locks* const locks = epochs_.locks_now();
  if (locks == nullptr || !window_.areas->drained()) return false;
  if (locks->unlock_uncounted_now(rank)) return true;
  const detail::MappedWords words = words_now(rank);
  MastersNow masters(*this);
  if (!words.exist() || !locks->is_the_one(rank, masters)) return false;
  locks->unlock_now(words, masters);
  return true;
}

void Epochs::lock_all(Lock& lock, int assertion) {
  leave_fence("MPI_Win_lock_all");
  call(lock, [&](Call& its) { epochs_.lock_all(its, checked(assertion)); });
}

void Epochs::unlock_all(Lock& lock) {
  call(lock, [&](Call& its) { epochs_.unlock_all(its); });
}

void Epochs::take_turn(Lock& lock, int rank, std::size_t word) {
  Call call(*this, lock);
  std::uint64_t* const turns = window_.areas->turns(rank);
  int looks = 0;
  const auto ours = [&] {
    std::uint64_t holder = 0;
    if (turns == nullptr) {
      holder = call.change_zero(rank, kTurns + word, Turns::name_of(window_.rank));
      if (holder == 0) return true;
    } else if (Turns::take_soon(turns[word], window_.rank)) {
      return true;
    } else {
      holder = Turns::holder(turns[word]);
    }
    if (holder == Turns::kBroken)
      throw Error(Code::timeout, window_.job->context.rank(), window_.parts[static_cast<std::size_t>(rank)].rank, 0, 0,
                  "an accumulate to rank " + std::to_string(rank) + ": the write of an earlier one did not complete");
    // Not by Context::check, which throws a failure once. Later than most turns last, since it opens a target.
    if (++looks >= kLooksAtTurn && holder != 0) call.check_alive(Turns::rank_of(holder));
    return false;
  };
  if (!ours()) call.await(rank, "for another accumulate at a rank", ours);
}

void Epochs::end_turn(int rank, std::size_t word, std::uint64_t next) noexcept try {
  if (std::uint64_t* const turns = window_.areas->turns(rank)) return Turns::end(turns[word], next);
  const Part& part = window_.parts[static_cast<std::size_t>(rank)];
  window_.job->control.swap(part.rank, part.place, kTurns + word, next);
} catch (const std::exception& reason) {
  // No rank needs the word of an owner that is lost, and the next access reports the loss.
  log(Level::info, std::string("a turn of accumulates was not ended: ") + reason.what());
}

}  // namespace sluice::mpi_rma
