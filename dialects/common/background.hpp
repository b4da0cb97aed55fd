// SPDX-License-Identifier: Apache-2.0
// Progress thread for operations that streams leave incomplete.
#pragma once

#include "runtime/ends_wait.hpp"

#include <sluice/stream.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

namespace sluice::stream_mpi {

/// Something that a stream starts and that may be left incomplete.
class Pending {
 public:
  Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  /// Called by the thread of the background: goes on without blocking. True: something is left, and what it waits for
  /// is added to `waits`.
  virtual bool go_on(detail::EndsWait& waits) noexcept = 0;

 protected:
  ~Pending() = default;
};

/// The thread. It exists from the first operation that is left incomplete to MPI_Finalize.
///
/// Most operations are waited for soon after their start, by a stream whose thread goes on with them. So the thread
/// looks a millisecond after `notice`, or up to 8 ms after it while all is waited for soon, and sleeps until what is
/// left can go on.
class Background {
 public:
  /// As long as this lives, the thread may advance `pending`. The last member of its class, so that it ends first.
  class Listed {
   public:
    explicit Listed(Pending& pending);
    Listed(const Listed&) = delete;
    Listed& operator=(const Listed&) = delete;
    /// Blocks while the thread runs `go_on`.
    ~Listed();

   private:
    Pending& pending_;
  };

  /// After something was left incomplete. Any thread.
  static void notice() noexcept;
  /// The thread ends. For MPI_Finalize.
  static void end() noexcept;

  // For tests, which await them.
  inline static std::atomic<std::uint64_t> steps{0};     ///< of operations that their streams have left here
  inline static std::atomic<std::uint64_t> returned{0};  ///< operations that went back to their streams behind a step

 private:
  enum class State : std::uint8_t { ended, awake, asleep };

  static Background& only();
  void rouse() noexcept;
  void run();
  void sleep_while_left();
  bool begins_again() noexcept;
  bool go_on_with_all();

  std::atomic<State> state_{State::ended};
  std::atomic<bool> ending_{false};
  std::mutex mutex_;            // of `all_` and `current_`; not held while an operation advances
  std::set<Pending*> all_;      // a pass goes by address, since some come and go during it
  Pending* current_ = nullptr;  // the one whose `go_on` runs
  std::condition_variable returned_;
  detail::EndsWait waits_;
  std::mutex thread_mutex_;
  std::optional<HostStream> thread_;
};

/// Owner of an operation: its stream, as at first, or the background. The owner alone uses it, without a lock.
class Handover {
 public:
  /// By the stream, which leaves the operation incomplete.
  void to_background() noexcept {
    state_.store(State::background, std::memory_order_release);
    Background::notice();
  }
  /// By the stream. False: the background runs a step of it.
  bool take_back() noexcept {
    State seen = state_.load(std::memory_order_acquire);
    if (seen == State::background) state_.compare_exchange_strong(seen, State::stream, std::memory_order_acquire);
    return seen != State::at_it;
  }
  /// Blocks for as long as a step of the background lasts.
  void await_take_back() noexcept;

  /// By the stream, once it has the operation: throws what a step of the background has thrown, once.
  void rethrow_failure() {
    if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  /// By the background: `step()` if the operation is left to it. Returns what that does, which is whether the
  /// background goes on later; if not, or if it throws, the stream has the operation.
  template <class Step>
  bool in_background(Step step) noexcept {
    State seen = state_.load(std::memory_order_relaxed);  // most are not left to it
    if (seen != State::background) return false;
    if (!state_.compare_exchange_strong(seen, State::at_it, std::memory_order_acquire)) return false;
    bool left = false;
    try {
      left = step();
    } catch (...) {
      failure_ = std::current_exception();
    }
    ++Background::steps;  // first: the next owner of the operation may count
    if (!left) ++Background::returned;
    state_.store(left ? State::background : State::stream, std::memory_order_release);
    return left;
  }

 private:
  enum class State : std::uint8_t { stream, background, at_it };

  std::atomic<State> state_{State::stream};
  std::exception_ptr failure_;  // of the owner
};

}  // namespace sluice::stream_mpi
