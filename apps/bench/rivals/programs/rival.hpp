// SPDX-License-Identifier: Apache-2.0
// What all rivals on GPUs share: a process for each of two ranks, which sluice-bench starts and talks with.
#pragma once

#include "apps/bench/harness/queue.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

namespace rivals {

/// What is measured, as sluice-bench says it.
struct Case {
  std::string unit;  ///< ping_pong, flood, halo, or kernel: a ping-pong that kernels do by themselves
  bench::Drive drive = bench::Drive::in_order;
  std::size_t bytes = 0;  ///< of a message
  int depth = 1;          ///< slots of a rank's target, but for a halo
  int window = 1;         ///< messages of a flood before an answer
  int neighbours = 1;     ///< of a halo: all of them are the other rank

  int slots() const;
  /// Steps after which the next one uses the first slots again.
  int period() const;
  /// Those from the first one that its unit has filled when it was done once.
  int filled() const;
  /// Whether a sender could come around to a slot that is not free: else each message says by itself that one is.
  bool needs_credits() const;
};

/// This rank, and what it gives to the other one, by way of sluice-bench.
class Rank {
 public:
  int rank = 0;
  int device = 0;    ///< its GPU
  std::string mode;  ///< which of the rivals, where a program is several

  /// Both call it; each returns what the other gave.
  template <class T>
  T exchange(const T& mine) const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 256);
    T theirs;
    swap(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(&theirs, 1)));
    return theirs;
  }
  /// Returns when both have called it.
  void meet() const { exchange(0); }

 private:
  static void swap(std::span<const std::byte> mine, std::span<std::byte> theirs);
};

/// One case, ready to be run.
class Runner {
 public:
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  virtual ~Runner() = default;
  /// Does the unit `count` times, together with the other rank. @returns how long that took, in nanoseconds.
  virtual double run(long count) = 0;
};

/// What a rival enqueues on its stream, for slots `first` to `first + count - 1` of a case. Messages arrive in the
/// order of their puts.
class Verbs {
 public:
  Verbs() = default;
  Verbs(const Verbs&) = delete;
  Verbs& operator=(const Verbs&) = delete;
  virtual ~Verbs() = default;

  /// Where the slots lie in this rank's GPU, one behind the other.
  struct Slots {
    void* source;
    void* target;
  };
  virtual Slots slots() const = 0;

  /// Moves the slots to the other rank's, each with its signal; where the case needs credits, once they are free.
  virtual void put(int first, int count) = 0;
  /// Later work sees what the other rank put there.
  virtual void wait(int first, int count) = 0;
  /// The other rank may put there again. Only where the case needs credits.
  virtual void release(int first, int count) = 0;
  /// Both at once, where both ranks do it.
  virtual void exchange(int first, int count) {
    put(first, count);
    wait(first, count);
  }
  /// An empty message, and its wait.
  virtual void notify() = 0;
  virtual void await_notice() = 0;

  /// The host takes part in every verb: nothing can be enqueued ahead.
  virtual bool driven_by_host() const { return false; }
};

/// Runs the unit of the case on the queue's stream, in the order in which all rivals do it.
std::unique_ptr<Runner> run_on(const Case& one_case, const Rank& rank, std::unique_ptr<bench::Queue> queue,
                               std::unique_ptr<Verbs> verbs);

/// A rival: whether it can run here (throws std::runtime_error if not), and how it does a case.
struct Rival {
  std::function<void(const Rank& rank)> check;
  std::function<std::unique_ptr<Runner>(const Case& one_case, const Rank& rank)> open;
};

/// The main of a rival: `check MODE` says whether it can run, `serve MODE RANK DEVICE` does what standard input says:
///
///     case UNIT DRIVE BYTES DEPTH WINDOW NEIGHBOURS    run COUNT
///
/// and answers `done`, with nanoseconds after a run, or `cannot` and why. `give HEX` comes before that, as often as
/// needed: it wants `take HEX` with what the other rank gave.
int serve(int argc, char** argv, const Rival& rival);

}  // namespace rivals
