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

/// How long `work()` takes, in nanoseconds.
template <class Work>
double timed(Work work) {
  const double start = now_ns();
  work();
  return now_ns() - start;
}

/// Who drives the steps of a contender, and what of them counts.
enum class Drive {
  in_order,      ///< the calling thread, in program order
  ahead,         ///< a stream, everything enqueued ahead and the host asleep
  stepwise,      ///< a stream, and the host synchronises with it after every step
  enqueue,       ///< a stream; what counts is the time that the host takes to enqueue a step
  enqueue_put,   ///< the same, of its put alone
  enqueue_wait,  ///< of its wait
  enqueue_release
};
inline constexpr std::array kDriveNames = {"in_order",    "ahead",        "stepwise",       "enqueue",
                                           "enqueue_put", "enqueue_wait", "enqueue_release"};

/// A stream that a contender fills while a gate holds it, so that what runs is enqueued ahead and the host asleep.
class Queue {
 public:
  using Synchronize = std::function<void(sluice::Stream)>;

  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  virtual ~Queue() = default;

  virtual sluice::Stream stream() = 0;
  /// Calls it in the order of the stream, by a thread that may use no GPU.
  virtual void run(std::function<void()> work) = 0;
  void synchronize() { synchronize_(stream()); }

  /// Does `step()` `count` times, driven so: anything but in_order.
  /// @returns how long that took, or what counts of it, in nanoseconds.
  template <class Step>
  double drive(Drive drive, long count, Step step) {
    drive_ = drive;
    switch (drive) {
      case Drive::in_order:
      case Drive::ahead: return run_ahead(count, step);
      case Drive::stepwise:
        return timed([&] {
          for (long i = 0; i < count; ++i) {
            step();
            synchronize();
          }
        });
      case Drive::enqueue: return time_enqueue(count, step);
      case Drive::enqueue_put:
      case Drive::enqueue_wait:
      case Drive::enqueue_release: break;
    }
    verb_ns_ = 0;
    time_enqueue(count, step);
    return verb_ns_;
  }

  /// A verb of a step, which may be the one that counts.
  template <class Work>
  void verb(Drive which, Work work) {
    if (drive_ != which) return work();
    verb_ns_ += timed(work);
  }

 protected:
  /// `items`: what the stream may hold. `items_per_step`: at most so many does a step enqueue; each verb of a channel
  /// is one. The same on both sides of a channel, since it decides how many steps have their turn at once.
  Queue(long items, long items_per_step, long most, Synchronize synchronize)
      : lead_in_(std::clamp(items / items_per_step / 2, 1L, kLeadIn)),
        most_(std::clamp(items / items_per_step - lead_in_, 1L, most)), synchronize_(std::move(synchronize)) {}

  /// Steps enqueued at once.
  long steps() const { return lead_in_ + most_; }

  /// In the order of the stream: what follows counts, or no more.
  virtual void begin() = 0;
  virtual void end() = 0;
  /// The time between them, once they have passed.
  virtual double between_ns() = 0;

 private:
  /// Enqueues `step()` `count` times behind the gate, opens it and sleeps until all has run; in parts that the queue
  /// holds.
  /// @returns what the steps took on the stream, in nanoseconds. Steps of a lead-in, in which the gates of all ranks
  /// open, do not count.
  template <class Step>
  double run_ahead(long count, Step step) {
    return in_parts(count, [&](long part) {
      {
        const Gate gate(*this);
        for (long i = 0; i < lead_in_; ++i) step();
        begin();
        for (long i = 0; i < part; ++i) step();
        end();
      }
      synchronize();
      return between_ns();
    });
  }

  /// @returns what it takes the host to enqueue `step()` `count` times, while the stream stands still.
  template <class Step>
  double time_enqueue(long count, Step step) {
    return in_parts(count, [&](long part) {
      double taken = 0;
      {
        const Gate gate(*this);
        taken = timed([&] {
          for (long i = 0; i < part; ++i) step();
        });
      }
      synchronize();
      return taken;
    });
  }

  static constexpr long kLeadIn = 10;

  // The stream stands still while there is one.
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
  double verb_ns_ = 0;  // of the verb that counts
  std::atomic<bool> open_{true};
};

}  // namespace bench
