// SPDX-License-Identifier: Apache-2.0
// Code that all rivals on GPUs share: a process for each of two ranks, which sluice-bench starts and exchanges lines
// with.
#pragma once

#include "apps/bench/harness/queue.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

namespace rivals {

/// A workload, as sluice-bench sends it.
struct Workload {
  std::string unit;  ///< ping_pong, flood, halo, or kernel: a ping-pong that kernels do by themselves
  bench::Drive drive = bench::Drive::in_order;
  std::size_t bytes = 0;  ///< of a message
  int depth = 1;          ///< slots of a rank's target, except in a halo
  int window = 1;         ///< messages of a flood before an answer
  int neighbours = 1;     ///< of a halo: all of them are the other rank

  int slots() const;
  /// Steps after which the next one uses the first slots again.
  int period() const;
  /// Number of slots, from the first on, that one unit has filled.
  int filled() const;
  /// True if a sender could reach a slot that is not free. Otherwise each message shows by itself that one is free.
  bool needs_credits() const;
};

/// This rank, and its exchange with the other one, by way of sluice-bench.
class Rank {
 public:
  int rank = 0;
  int device = 0;    ///< its GPU
  std::string mode;  ///< the rival, if a program contains several

  /// Both ranks call it; each returns the other's value.
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

/// One workload, ready to be run.
class Runner {
 public:
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  virtual ~Runner() = default;
  /// Runs the unit `count` times, together with the other rank. @returns the time that this took, in nanoseconds.
  virtual double run(long count) = 0;
};

/// The operations that a rival enqueues on its stream, for slots `first` to `first + count - 1` of a workload. Messages
/// arrive in the order of their puts.
class Verbs {
 public:
  Verbs() = default;
  Verbs(const Verbs&) = delete;
  Verbs& operator=(const Verbs&) = delete;
  virtual ~Verbs() = default;

  /// The slots in this rank's GPU, contiguous.
  struct Slots {
    void* source;
    void* target;
  };
  virtual Slots slots() const = 0;

  /// Moves the slots to the other rank's, each with its signal; if the workload needs credits, as soon as they are
  /// free.
  virtual void put(int first, int count) = 0;
  /// Later work sees the bytes that the other rank put there.
  virtual void wait(int first, int count) = 0;
  /// The other rank may put there again. Called only if the workload needs credits.
  virtual void release(int first, int count) = 0;
  /// A put and a wait together, in cases in which both ranks do both.
  virtual void exchange(int first, int count) {
    put(first, count);
    wait(first, count);
  }
  /// An empty message, and its wait.
  virtual void notify() = 0;
  virtual void await_notice() = 0;

  /// True if the host takes part in every verb, so that nothing can be enqueued ahead.
  virtual bool driven_by_host() const { return false; }
};

/// Runs the unit of the workload on the queue's stream, in the order in which all rivals do it.
std::unique_ptr<Runner> run_on(const Workload& workload, const Rank& rank, std::unique_ptr<bench::Queue> queue,
                               std::unique_ptr<Verbs> verbs);

/// A rival: checks whether it can run here (throws std::runtime_error if not), and makes the runner of a workload.
struct Rival {
  std::function<void(const Rank& rank)> check;
  std::function<std::unique_ptr<Runner>(const Workload& workload, const Rank& rank)> open;
};

/// The main of a rival: `check MODE` reports whether it can run, `serve MODE RANK DEVICE` executes the lines of
/// standard input:
///
///     workload UNIT DRIVE BYTES DEPTH WINDOW NEIGHBOURS    run COUNT
///
/// and answers each with `done`, followed by nanoseconds after a run, or `cannot` and why. Before that it may send
/// `give HEX` any number of times, and expects `take HEX` with the other rank's value.
int serve(int argc, char** argv, const Rival& rival);

}  // namespace rivals
