// SPDX-License-Identifier: Apache-2.0
// What host streams have started goes on in a thread of the library's own while no stream waits for it.
#pragma once

#include "runtime/ends_wait.hpp"

#include <sluice/stream.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_set>

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
/// looks a millisecond after it was noticed, and then sleeps until what is left can go on.
class Background {
 public:
  /// As long as this lives, `pending` may be gone on with. The last member of its class, so that it ends first.
  class Listed {
   public:
    explicit Listed(Pending& pending);
    Listed(const Listed&) = delete;
    Listed& operator=(const Listed&) = delete;
    /// Blocks while the thread is at it.
    ~Listed();

   private:
    Pending& pending_;
  };

  /// After something was left incomplete. Any thread.
  static void notice() noexcept;
  /// The thread ends. For MPI_Finalize.
  static void end() noexcept;

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
  std::mutex mutex_;  // of `all_`, while one of them is gone on with, too
  std::unordered_set<Pending*> all_;
  detail::EndsWait waits_;
  std::mutex thread_mutex_;
  std::optional<HostStream> thread_;
};

}  // namespace sluice::stream_mpi
