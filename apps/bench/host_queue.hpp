// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/contender.hpp"

#include <sluice/sluice.hpp>

#include <algorithm>
#include <atomic>
#include <utility>

namespace bench {

/// A host stream that a contender fills while a gate holds it, so that what runs is enqueued ahead and the host asleep.
class HostQueue {
 public:
  sluice::Stream stream() { return sluice::Stream::host(stream_); }

  template <class Work>
  void run(Work work) {
    stream_.run(std::move(work));
  }

  /// Enqueues `step()` `count` times behind the gate, opens it and sleeps until all has run; at most kMost at once.
  /// @returns what the steps took on the stream, in nanoseconds. Steps of a lead-in, in which the gates of all ranks
  /// open, do not count.
  template <class Step>
  double run_ahead(sluice::Context& context, long count, Step step) {
    return in_parts(count, [&](long part) {
      {
        const Gate gate(*this);
        for (int i = 0; i < kLeadIn; ++i) step();
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

  /// Steps enqueued at once. All of them fit into the stream's queue, which would block the host behind its own gate.
  static constexpr long kMost = 200;

 private:
  static constexpr int kLeadIn = 10;

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
  static double in_parts(long count, Run run_part) {
    double taken = 0;
    for (long done = 0; done < count; done += kMost) taken += run_part(std::min(kMost, count - done));
    return taken;
  }

  std::atomic<bool> open_{true};
  double began_ = 0;
  double ended_ = 0;
  sluice::HostStream stream_;
};

}  // namespace bench
