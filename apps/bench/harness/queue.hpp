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

/// The driver of a contender's steps, and the time that is measured.
enum class Drive {
  in_order,      ///< the calling thread, in program order
  ahead,         ///< a stream, everything enqueued ahead and the host asleep
  stepwise,      ///< a stream, and the host synchronises with it after every step
  enqueue,       ///< a stream; measured is the time that the host takes to enqueue a step
  enqueue_put,   ///< a stream; measured is the time that the host takes to enqueue the step's put
  enqueue_wait,  ///< the same for its wait
  enqueue_release,
  replayed,       ///< a graph that a stream replays, everything enqueued ahead and the host asleep
  enqueue_replay  ///< a graph; measured is the time that the host takes to enqueue its launch
};
inline constexpr std::array kDriveNames = {"in_order",        "ahead",       "stepwise",
                                           "enqueue",         "enqueue_put", "enqueue_wait",
                                           "enqueue_release", "replayed",    "enqueue_replay"};

inline bool replays(Drive drive) { return drive == Drive::replayed || drive == Drive::enqueue_replay; }

/// A stream that a contender fills while a gate holds it, so that everything is enqueued ahead while the host sleeps.
class Queue {
 public:
  using Synchronize = std::function<void(sluice::Stream)>;

  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  virtual ~Queue() = default;

  virtual sluice::Stream stream() = 0;
  /// Calls `work` in the order of the stream, in a thread that may use no GPU.
  virtual void run(std::function<void()> work) = 0;
  void synchronize() { synchronize_(stream()); }

  /// Steps that are not measured: meanwhile the gates of all ranks open.
  static constexpr long kLeadIn = 10;

  /// Captures the steps to be replayed, if the drive is `replayed`: `period` of them, after which a channel is at the
  /// slot at which it began. Call it before another rank's kernels wait for this rank: the driver might wait for them.
  template <class Step>
  void prepare(Drive drive, Step step, long period) {
    if (!replays(drive)) return;
    period_ = period;
    capture([&] {
      for (long i = 0; i < period; ++i) step();
    });
  }

  /// Runs `step()` `count` times with this drive, which is not in_order. Replayed steps must have been prepared.
  /// @returns the measured time, in nanoseconds.
  template <class Step>
  double drive(Drive drive, long count, Step step) {
    drive_ = drive;
    switch (drive) {
      case Drive::in_order:
      case Drive::ahead: return run_ahead(count, step);
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

  /// Enqueues `lead_in()` and `work()` behind the gate, opens it and sleeps until all has run.
  /// @returns the time of `work()` on the stream, in nanoseconds. It excludes the time in which the gates of all ranks
  /// open, if `lead_in()` waits for the other ranks.
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

  /// A verb of a step, which may be the measured one.
  template <class Work>
  void verb(Drive which, Work work) {
    if (drive_ != which) return work();
    verb_ns_ += timed(work);
  }

 protected:
  /// `items`: the capacity of the stream. `items_per_step`: the largest number of items that a step enqueues; each verb
  /// of a channel is one. The same on both sides of a channel, because it decides how many steps are enqueued at once.
  Queue(long items, long items_per_step, long most, Synchronize synchronize)
      : lead_in_(std::clamp(items / items_per_step / 2, 1L, kLeadIn)),
        most_(std::clamp(items / items_per_step - lead_in_, 1L, most)), synchronize_(std::move(synchronize)) {}

  /// Steps enqueued at once.
  long steps() const { return lead_in_ + most_; }

  /// Marks, in the order of the stream, the begin and the end of the measured work.
  virtual void begin() = 0;
  virtual void end() = 0;
  /// The time between begin and end, after both have completed.
  virtual double between_ns() = 0;

  /// Makes a graph of the operations that `work` enqueues, which are not executed; and enqueues that graph.
  virtual void capture(const std::function<void()>& work) = 0;
  virtual void launch_graph() = 0;

 private:
  /// Enqueues `step()` `count` times behind the gate, in parts that fit into the queue, after the steps of a lead-in.
  template <class Step>
  double run_ahead(long count, Step step) {
    const auto steps = [&](long some) {
      for (long i = 0; i < some; ++i) step();
    };
    return in_parts(count, [&](long part) { return time_ahead([&] { steps(lead_in_); }, [&] { steps(part); }); });
  }

  /// Launches whole graphs. @returns the time of `count` of their steps.
  double replay(long count) {
    if (!std::exchange(launched_, true)) {
      launch_graph();  // the first launch may wait for the stream, so no gate may hold it then
      synchronize();
    }
    const long launches = (count + period_ - 1) / period_;
    const auto launch = [this] { launch_graph(); };
    const double taken = drive_ == Drive::replayed ? run_ahead(launches, launch) : time_enqueue(launches, launch);
    return taken * static_cast<double>(count) / static_cast<double>(launches * period_);
  }

  /// @returns the time that the host takes to enqueue `step()` `count` times, while a gate holds the stream.
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

  // Holds the stream as long as it lives.
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
    for (long done = 0; done < count; done += most_) taken += run_part(std::min(most_, count - done));
    return taken;
  }

  const long lead_in_;
  const long most_;
  const Synchronize synchronize_;
  Drive drive_ = Drive::in_order;
  double verb_ns_ = 0;  // of the measured verb
  long period_ = 1;
  bool launched_ = false;
  std::atomic<bool> open_{true};
};

}  // namespace bench
