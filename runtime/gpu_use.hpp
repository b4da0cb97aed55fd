// SPDX-License-Identifier: Apache-2.0
// The use of one end of a channel on the streams of a GPU: what the driver was given for it, and how far the streams
// have come. An end that only CPUs use has none.
#pragma once

#include <atomic>

#include "backends/put.hpp"
#include "device/reach.hpp"

namespace sluice::runtime {

/// The driver's GPUs will raise `word`, which is one of a base::Progress.
void reach_progress(device::Driver& driver, base::Word& word);

class GpuUse {
 public:
  /// Loads what the driver needs. `rung`: its put is fired by a bell, so that only a mark of ours tells that a stream
  /// has passed. @throws device::GpuError
  GpuUse(device::Driver& driver, int gpu, const backends::RungPut* rung);
  GpuUse(const GpuUse&) = delete;
  GpuUse& operator=(const GpuUse&) = delete;
  ~GpuUse();

  device::Driver& driver() const noexcept { return driver_; }
  int gpu() const noexcept { return gpu_; }
  /// Gives the driver the slots. False: it has other pages at their addresses, and kernels must not use them.
  bool reach_slots(const device::Extent& memory, std::string& why_not);
  /// Takes back what the driver was given of the slots.
  void give_up() noexcept { slots_.clear(); }

  /// On the stream, behind all that it was given. False: the driver refused.
  bool raise_behind(Stream stream, base::Word& word, std::uint64_t value) const noexcept;
  /// A mark, where the put is rung for: what it is behind has completed once the stream writes it. If the driver
  /// refuses it, nothing is waited for.
  void mark_behind(Stream stream) noexcept;
  void mark(device::Lane lane) {
    if (marks_ != nullptr) lane.gpu->write(marks_->word, ++marked_);
  }
  /// The driver has refused some of what was to fire the epochs up to `last`. The stream may still come to the rest.
  void firing_refused(Stream stream, base::Word& done, std::uint64_t last) noexcept;
  /// One epoch was refused that has no ring, and never completes.
  void refuse_epoch() noexcept { ++refused_; }
  /// The epochs up to `last` have completed, or never will.
  bool fired(std::uint64_t last, const base::Word& done) const noexcept;
  /// Once the stream has passed what its driver took, the engine does not wait for the rings that it refused.
  void forget_refused_rings(backends::RungPut& rung) const noexcept {
    if (ring_refused_ && marks_passed()) rung.forget_refused_rings();
  }

  /// The GPU runs nothing any more: its context has failed.
  bool lost() const noexcept { return lost_; }
  /// Asks the driver, now and then. True: it has just been lost; the caller fails the end, then calls `lose`.
  bool look_for_loss(base::Clock::time_point now) noexcept;
  void lose() noexcept {
    ring_refused_ = rung_ != nullptr;  // of what was to be rung for, the rest never will be
    lost_ = true;
  }

 private:
  bool marks_passed() const noexcept { return lost_ || marks_ == nullptr || base::reached(marks_->word, marked_); }

  device::Driver& driver_;
  const int gpu_;
  const backends::RungPut* const rung_;
  device::Reached slots_;
  base::Progress* marks_ = nullptr;
  std::atomic<std::uint64_t> marked_{0};   // which the stream was given
  std::atomic<std::uint64_t> refused_{0};  // epochs that the driver refused, and that are not rung for
  std::atomic<bool> ring_refused_{false};  // of the last epoch
  std::atomic<bool> lost_{false};
  base::Clock::time_point ask_at_{};
};

}  // namespace sluice::runtime
