// SPDX-License-Identifier: Apache-2.0
// Copies of a GPU's memory that nobody waits for: a stream of ours makes them, and a word tells which are over.
#pragma once

#include "device/gpu.hpp"
#include "device/reach.hpp"

namespace sluice::device {

/// Who waits for a copy may hold up the stream that it is behind, where they share a hardware queue: so the engine
/// gives its copies to a courier, and looks at the word in its next turns (tests: UnmappedOnStreams.that_is_held_up_*,
/// GpuStaging.that_is_held_up_*). Used by one thread at a time.
class Courier {
 public:
  /// `over`: of a base::Progress, whose parking is silenced if somebody sleeps for it. @throws GpuError
  Courier(Driver& driver, int gpu, base::Word& over)
      : driver_(driver), stream_(driver.own_stream(gpu)), gpu_(gpu), over_(over) {
    reach_for_ever(driver, base::page_of(over), base::Progress::kPage);
    if (words_by_kernels()) driver.load_kernels(gpu);  // not behind what waits for it
  }

  /// Gives the stream what `work(lane)` does. Once that is over, the word is `number`; numbers rise. What the driver
  /// refuses fails the watch, and is over too once what was given before that is.
  template <class F>
  void give(Watch& watch, std::uint64_t number, F work) {
    try {
      on_gpu(GpuCall(stream_, gpu_), [&](Lane lane) {
        work(lane);
        lane.gpu->write(over_, number);
      });
    } catch (const GpuError& reason) {
      watch.fail(Code::transport, reason.what());
      unsaid_ = number;
      (void)has_said();
    }
  }

  /// Whether what was given up to `number` is over. Where the GPU runs nothing any more it is, and the watch fails.
  bool is_over(Watch& watch, std::uint64_t number) noexcept {
    if (has_said() && base::reached(over_, number)) return true;
    if (!lost()) return false;
    watch.fail(Code::transport, kLost);
    return true;
  }

  /// Whether the driver took the word of what was given. What it has refused is tried again: a copy may be under way,
  /// so that nobody else may say that it is over, unless the GPU runs nothing any more.
  bool has_said() noexcept {
    if (unsaid_ == 0) return true;
    try {
      on_gpu(GpuCall(stream_, gpu_), [&](Lane lane) { lane.gpu->write(over_, unsaid_); });
      unsaid_ = 0;
    } catch (const GpuError&) {
      return lost();
    }
    return true;
  }

 private:
  /// Asks the driver now and then.
  bool lost() noexcept {
    constexpr auto kAskEvery = std::chrono::milliseconds(1);
    if (lost_) return true;
    const auto now = base::Clock::now();
    if (now < ask_at_) return false;
    ask_at_ = now + kAskEvery;
    return lost_ = driver_.lost(gpu_);
  }

  Driver& driver_;
  Stream stream_;
  int gpu_;
  base::Word& over_;
  std::uint64_t unsaid_ = 0;
  bool lost_ = false;
  base::Clock::time_point ask_at_{};
};

}  // namespace sluice::device
