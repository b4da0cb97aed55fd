// SPDX-License-Identifier: Apache-2.0
// Code that all rivals on GPUs share. sluice-bench starts a process for each of its two ranks, and exchanges lines with
// it.
#pragma once

#include "apps/bench/harness/queue.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

namespace rivals {

/// The task of a rival, as sluice-bench sends it.
struct Workload {
  std::string unit;  ///< ping_pong, flood, halo, or kernel: a ping-pong that kernels do by themselves
  bench::Drive drive = bench::Drive::in_order;
  std::size_t bytes = 0;  ///< length of a message
  int depth = 1;          ///< slots of a rank's target, except in a halo
  int window = 1;         ///< messages of a flood before an answer
  int neighbours = 1;     ///< number of neighbours in a halo: all of them are the other rank

  /// The slots of a rank's target, and of its source.
  int slots() const;
  /// The number of steps after which the next step uses the first slots again.
  int period() const;
  /// The number of slots that the first unit fills, beginning with the first slot.
  int filled() const;
  /// True if a sender could overwrite a slot that the receiver has not read. Otherwise each message from the receiver
  /// shows that it has read the previous one.
  bool needs_credits() const;
};

/// This rank, and its exchange of values with the other one, which sluice-bench passes on.
class Rank {
 public:
  int rank = 0;
  int device = 0;    ///< its GPU
  std::string mode;  ///< the rival to run, if a program contains several

  /// Returns the value that the other rank passes. Both ranks call it.
  template <class T>
  T exchange(const T& mine) const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 256);
    T theirs;
    swap(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(&theirs, 1)));
    return theirs;
  }
  /// Returns when both ranks have called it.
  void meet() const { exchange(0); }

 private:
  static void swap(std::span<const std::byte> mine, std::span<std::byte> theirs);
};

/// A workload that is ready to run.
class Runner {
 public:
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  virtual ~Runner() = default;
  /// Runs the unit `count` times, together with the other rank. @returns the time that this took, in nanoseconds.
  virtual double run(long count) = 0;
};

/// The operations of a rival on its stream, each for `count` slots from slot `first` on. Messages arrive in the order
/// of their puts.
class Verbs {
 public:
  Verbs() = default;
  Verbs(const Verbs&) = delete;
  Verbs& operator=(const Verbs&) = delete;
  virtual ~Verbs() = default;

  /// The first slots of the source and of the target in this rank's GPU. The other slots follow without gaps.
  struct Slots {
    void* source;
    void* target;
  };
  virtual Slots slots() const = 0;

  /// Enqueues copies of slots of the source into the other rank's target, each with its signal. If the workload needs
  /// credits, the copies wait until those slots are free.
  virtual void put(int first, int count) = 0;
  /// Enqueues a wait for the signals: later work sees the bytes that the other rank has put into the slots.
  virtual void wait(int first, int count) = 0;
  /// Allows the other rank to put into the slots again. Called only if the workload needs credits.
  virtual void release(int first, int count) = 0;
  /// A put and a wait together, in workloads in which both ranks do both.
  virtual void exchange(int first, int count) {
    put(first, count);
    wait(first, count);
  }
  /// The answer after a window of messages, and the wait for it.
  virtual void notify() = 0;
  virtual void await_notice() = 0;

  /// True if the host takes part in every operation, so that nothing can be enqueued ahead.
  virtual bool driven_by_host() const { return false; }
};

/// Makes a runner of the workload on the queue's stream. The order of the operations is the same for all rivals.
std::unique_ptr<Runner> run_on(const Workload& workload, const Rank& rank, std::unique_ptr<bench::Queue> queue,
                               std::unique_ptr<Verbs> verbs);

/// A rival. `check` throws std::runtime_error if the rival cannot run here; `open` makes the runner of a workload.
struct Rival {
  std::function<void(const Rank& rank)> check;
  std::function<std::unique_ptr<Runner>(const Workload& workload, const Rank& rank)> open;
};

/// The main of a rival. With the arguments `check MODE` it reports whether the rival can run. With `serve MODE RANK
/// DEVICE` it executes the lines of standard input:
///
///     workload UNIT DRIVE BYTES DEPTH WINDOW NEIGHBOURS    run COUNT
///
/// It answers each with `done` (after a run, with the nanoseconds that it took) or with `cannot` and the reason. Before
/// that it may send `give HEX` any number of times, a value for the other rank; it is then answered by `take HEX`, the
/// other rank's value.
int serve(int argc, char** argv, const Rival& rival);

}  // namespace rivals
