// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/stream.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace bench {

inline double now_ns() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The time that `work()` takes, in nanoseconds.
template <class Work>
double timed(Work work) {
  const double start = now_ns();
  work();
  return now_ns() - start;
}

/// The time that `count` calls of `step()` take, in nanoseconds.
template <class Step>
double timed_steps(long count, Step step) {
  return timed([&] {
    for (long i = 0; i < count; ++i) step();
  });
}

/// How the steps of a contender run, and which time is measured.
enum class Drive {
  in_order,         ///< the calling thread runs the steps; their time
  ahead,            ///< all steps are enqueued on a stream before the first one runs; their time on the stream
  pipelined,        ///< the host enqueues steps while the stream runs them, and then synchronises; the host's time
  stepwise,         ///< the host enqueues a step and synchronises with the stream, again and again; the host's time
  enqueue,          ///< as `ahead`; the time that the host takes to enqueue a step
  enqueue_put,      ///< as `ahead`; the time that the host takes to enqueue the put of a step
  enqueue_wait,     ///< as `ahead`; the time that the host takes to enqueue the wait of a step
  enqueue_release,  ///< as `ahead`; the time that the host takes to enqueue the release of a step
  replayed,         ///< as `ahead`, but the steps are a graph that is launched again and again
  enqueue_replay    ///< as `replayed`; the time that the host takes to launch the graph
};
inline constexpr std::array kDriveNames = {"in_order", "ahead",         "pipelined",    "stepwise",
                                           "enqueue",  "enqueue_put",   "enqueue_wait", "enqueue_release",
                                           "replayed", "enqueue_replay"};

inline bool replays(Drive drive) { return drive == Drive::replayed || drive == Drive::enqueue_replay; }

/// A stream and a gate. While the gate is closed, the host enqueues work that does not run; then it opens the gate and
/// sleeps, so that it has no part in the measured time.
class Queue {
 public:
  using Synchronize = std::function<void(sluice::Stream)>;

  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  virtual ~Queue() = default;

  virtual sluice::Stream stream() = 0;
  /// Enqueues a call of `work`, which may not use a GPU.
  virtual void run(std::function<void()> work) = 0;
  void synchronize() { synchronize_(stream()); }

  /// The number of steps that run before the measured ones, while the gates of all ranks open.
  static constexpr long kLeadIn = 10;

  /// If the drive replays a graph, captures `period` steps into it. After that many steps a channel must be back at the
  /// slot at which it began. Call it before kernels of another rank wait for this rank: the driver might wait for them.
  template <class Step>
  void prepare(Drive drive, Step step, long period) {
    if (!replays(drive)) return;
    period_ = period;
    capture([&] {
      for (long i = 0; i < period; ++i) step();
    });
  }

  /// Runs `step()` `count` times, driven in any way but `in_order`. A drive that replays needs an earlier `prepare`.
  /// @returns the measured time, in nanoseconds
  template <class Step>
  double drive(Drive drive, long count, Step step) {
    drive_ = drive;
    switch (drive) {
      case Drive::in_order:
      case Drive::ahead: return run_ahead(count, step);
      case Drive::pipelined:
        return timed([&] {
          for (long i = 0; i < count; ++i) step();
          synchronize();
        });
      case Drive::stepwise:
        return timed_steps(count, [&] {
          step();
          synchronize();
        });
      case Drive::enqueue: return time_enqueue(count, step);
      case Drive::enqueue_put:
      case Drive::enqueue_wait:
      case Drive::enqueue_release: break;
      case Drive::replayed:
      case Drive::enqueue_replay: return replay(count);
    }
    verb_ns_ = 0;
    time_enqueue(count, step);
    return verb_ns_;
  }

  /// Enqueues `lead_in()` and `work()` while the gate is closed, opens it, and sleeps until both have run.
  /// @returns the time of `work()` on the stream, in nanoseconds; if `lead_in()` waits for the other ranks, without the
  /// time until all gates are open
  template <class LeadIn, class Work>
  double time_ahead(LeadIn lead_in, Work work) {
    {
      const Gate gate(*this);
      lead_in();
      begin();
      work();
      end();
    }
    synchronize();
    return between_ns();
  }

  /// Enqueues a verb of a step by `work()`; measures its time if the drive is `which`.
  template <class Work>
  void verb(Drive which, Work work) {
    if (drive_ != which) return work();
    verb_ns_ += timed(work);
  }

 protected:
  /// @param items           the number of items that the stream holds
  /// @param items_per_step  the most items that a step enqueues; each verb of a channel is one. The same on both sides
  ///                        of a channel, because it decides how many steps are enqueued at once.
  /// @param max_steps       the most measured steps that are enqueued at once
  Queue(long items, long items_per_step, long max_steps, Synchronize synchronize)
      : lead_in_(std::clamp(items / items_per_step / 2, 1L, kLeadIn)),
        steps_at_once_(std::clamp(items / items_per_step - lead_in_, 1L, max_steps)),
        synchronize_(std::move(synchronize)) {}

  /// The most steps that are enqueued at once, with the lead-in.
  long steps() const { return lead_in_ + steps_at_once_; }

  /// Enqueues a time stamp, at the begin and at the end of the measured work.
  virtual void begin() = 0;
  virtual void end() = 0;
  /// The time between the two stamps, in nanoseconds, after both were taken.
  virtual double between_ns() = 0;

  /// Makes a graph of the operations that `work` enqueues, and does not execute them.
  virtual void capture(const std::function<void()>& work) = 0;
  /// Enqueues the graph.
  virtual void launch_graph() = 0;

 private:
  /// Runs `step()` `count` times by `time_ahead`, in parts that fit into the stream, each after a lead-in.
  template <class Step>
  double run_ahead(long count, Step step) {
    const auto steps = [&](long some) {
      for (long i = 0; i < some; ++i) step();
    };
    return in_parts(count, [&](long part) { return time_ahead([&] { steps(lead_in_); }, [&] { steps(part); }); });
  }

  /// Launches whole graphs, at least `count` steps. @returns the share of `count` steps in the time of all
  double replay(long count) {
    if (!std::exchange(launched_, true)) {
      launch_graph();  // while no gate is closed, because the first launch may wait until the stream is idle
      synchronize();
    }
    const long launches = (count + period_ - 1) / period_;
    const auto launch = [this] { launch_graph(); };
    const double taken = drive_ == Drive::replayed ? run_ahead(launches, launch) : time_enqueue(launches, launch);
    return taken * static_cast<double>(count) / static_cast<double>(launches * period_);
  }

  /// @returns the time that the host takes to enqueue `step()` `count` times, while the gate is closed
  template <class Step>
  double time_enqueue(long count, Step step) {
    return in_parts(count, [&](long part) {
      double taken = 0;
      {
        const Gate gate(*this);
        taken = timed_steps(part, step);
      }
      synchronize();
      return taken;
    });
  }

  // Stops the stream as long as this object lives.
  class Gate {
   public:
    explicit Gate(Queue& queue) : open_(queue.open_) {
      open_.store(false);
      queue.run([&open = open_] { open.wait(false); });
    }
    ~Gate() {
      open_.store(true);
      open_.notify_one();
    }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;

   private:
    std::atomic<bool>& open_;
  };

  template <class Run>
  double in_parts(long count, Run run_part) const {
    double taken = 0;
    for (long done = 0; done < count; done += steps_at_once_) taken += run_part(std::min(steps_at_once_, count - done));
    return taken;
  }

  const long lead_in_;
  const long steps_at_once_;
  const Synchronize synchronize_;
  Drive drive_ = Drive::in_order;
  double verb_ns_ = 0;  // the time of the measured verb so far
  long period_ = 1;     // the steps of the graph
  bool launched_ = false;
  std::atomic<bool> open_{true};
};

}  // namespace bench
