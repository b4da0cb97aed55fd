// SPDX-License-Identifier: Apache-2.0
// Copies of a GPU's memory for the engine: a stream of ours makes them, and a word counts the completed ones.
#pragma once

#include "device/gpu.hpp"
#include "device/reach.hpp"

namespace sluice::device {

/// A copy may share a hardware queue with a parked stream, and a thread that waited for the copy might hold up that
/// very stream. So the engine enqueues its copies here, and reads the word in its next turns (tests:
/// UnmappedOnStreams.that_is_held_up_*, GpuStaging.that_is_held_up_*). Used by one thread at a time.
class CopyStream {
 public:
  /// `completed`: word of a base::Progress, whose parking is silenced if a thread sleeps for it. @throws GpuError
  CopyStream(Driver& driver, int gpu, base::Word& completed)
      : driver_(driver), stream_(driver.own_stream(gpu)), gpu_(gpu), completed_(completed) {
    reach_for_ever(driver, base::page_of(completed), base::Progress::kPage);
    if (words_by_kernels()) driver.load_kernels(gpu);  // now: loading behind a parked stream would wait for it
  }

  /// Enqueues `work(lane)`. The word becomes `number` once the work has completed; numbers rise. If the driver refuses
  /// work, the watch fails, and the work counts as completed once the work before it has completed.
  template <class F>
  void give(Watch& watch, std::uint64_t number, F work) {
    try {
      on_gpu(GpuCall(stream_, gpu_), [&](Lane lane) {
        work(lane);
        lane.gpu->write(completed_, number);
      });
    } catch (const GpuError& reason) {
      watch.fail(Code::transport, reason.what());
      unwritten_ = number;
      (void)has_written();
    }
  }

  /// True if all work up to `number` has completed. If the GPU's context has failed, returns true, and the watch fails.
  bool has_completed(Watch& watch, std::uint64_t number) noexcept {
    if (has_written() && base::reached(completed_, number)) return true;
    if (!lost()) return false;
    watch.fail(Code::transport, kLost);
    return true;
  }

  /// True if the driver took the write of the word for all work. A refused write is tried again: a copy may be under
  /// way, so that only the stream may write that it has completed, unless the GPU's context has failed.
  bool has_written() noexcept {
    if (unwritten_ == 0) return true;
    try {
      on_gpu(GpuCall(stream_, gpu_), [&](Lane lane) { lane.gpu->write(completed_, unwritten_); });
      unwritten_ = 0;
    } catch (const GpuError&) {
      return lost();
    }
    return true;
  }

 private:
  /// Asks the driver, at most once a millisecond.
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
  base::Word& completed_;
  std::uint64_t unwritten_ = 0;
  bool lost_ = false;
  base::Clock::time_point ask_at_{};
};

}  // namespace sluice::device
