// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/contender.hpp"

#include <sluice/sluice.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>

namespace bench {

/// A host stream that a contender fills while a gate holds it, so that what runs is enqueued ahead and the host asleep.
class HostQueue {
 public:
  /// `items_per_step`: at most so many does a step enqueue; each verb of a channel is one. The same on both sides of a
  /// channel, since it decides how many steps have their turn at once.
  explicit HostQueue(long items_per_step)
      : most_(std::clamp(kItems / items_per_step - kLeadIn, 1L, kMost)), lead_in_(std::min(kLeadIn, most_)),
        stream_(sluice::HostStream::Options{.capacity = capacity(items_per_step)}) {}

  sluice::Stream stream() { return sluice::Stream::host(stream_); }

  template <class Work>
  void run(Work work) {
    stream_.run(std::move(work));
  }

  /// Enqueues `step()` `count` times behind the gate, opens it and sleeps until all has run; in parts that the queue
  /// holds.
  /// @returns what the steps took on the stream, in nanoseconds. Steps of a lead-in, in which the gates of all ranks
  /// open, do not count.
  template <class Step>
  double run_ahead(sluice::Context& context, long count, Step step) {
    return in_parts(count, [&](long part) {
      {
        const Gate gate(*this);
        for (long i = 0; i < lead_in_; ++i) step();
        run([this] { began_ = now_ns(); });
        for (long i = 0; i < part; ++i) step();
        run([this] { ended_ = now_ns(); });
      }
      context.synchronize(stream());
      return ended_ - began_;
    });
  }

  /// @returns what it takes the host to enqueue `step()` `count` times, while the stream stands still.
  template <class Step>
  double time_enqueue(sluice::Context& context, long count, Step step) {
    return in_parts(count, [&](long part) {
      double taken = 0;
      {
        const Gate gate(*this);
        taken = timed([&] {
          for (long i = 0; i < part; ++i) step();
        });
      }
      context.synchronize(stream());
      return taken;
    });
  }

  /// Steps enqueued at once, if they are not very long.
  static constexpr long kMost = 200;

 private:
  static constexpr long kLeadIn = 10;
  static constexpr long kItems = 65536;  // as a stream has that nobody sized
  static constexpr long kGateAndStamps = 3;

  // A full queue would block the host behind its own gate.
  std::size_t capacity(long items_per_step) const {
    return static_cast<std::size_t>(std::max(kItems, (lead_in_ + most_) * items_per_step + kGateAndStamps));
  }

  // The stream stands still while there is one.
  class Gate {
   public:
    explicit Gate(HostQueue& queue) : open_(queue.open_) {
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

  const long most_;
  const long lead_in_;
  std::atomic<bool> open_{true};
  double began_ = 0;
  double ended_ = 0;
  sluice::HostStream stream_;
};

}  // namespace bench
