// SPDX-License-Identifier: Apache-2.0
// The use of one end of a channel on the streams of a GPU: what the driver was given for it, and which work the streams
// have completed. An end that only CPUs use has none.
#pragma once

#include <atomic>
#include <memory>

#include "backends/put.hpp"
#include "device/reach.hpp"

namespace sluice::runtime {

/// The driver's GPUs will raise `word`, which is one of a base::Progress.
void reach_progress(device::Driver& driver, base::Word& word);

struct GiveBack {
  void operator()(base::Progress* progress) const noexcept { base::give_back(*progress); }
};
using OwnedProgress = std::unique_ptr<base::Progress, GiveBack>;
/// One that the driver's GPUs will raise.
OwnedProgress progress_for(device::Driver& driver);

class GpuUse {
 public:
  /// Loads what the driver needs. `rung`: the put of this end, if a bell fires it; null: none does. `sends`: the end
  /// has acquires. Only a mark of ours shows that a stream has completed such a put, or an acquire.
  /// @throws device::GpuError
  GpuUse(device::Driver& driver, int gpu, const backends::RungPut* rung, bool sends);

  device::Driver& driver() const noexcept { return driver_; }
  int gpu() const noexcept { return gpu_; }
  /// Gives the driver the slots. False: the driver has other pages at their addresses, and kernels must not use them.
  bool reach_slots(const device::Extent& memory, std::string& why_not);
  /// Takes back what the driver was given of the slots.
  void give_up() noexcept { slots_.clear(); }

  /// The stream raises the word after all work that it was given. False: the driver refused.
  bool raise_behind(Stream stream, base::Word& word, std::uint64_t value) const noexcept;
  /// If a bell fires the put, makes the stream write a mark after all work that it was given. Nothing waits for a mark
  /// that the driver refuses.
  void mark_behind(Stream stream) noexcept;
  void mark(device::Lane lane) {
    if (marks_ != nullptr) lane.gpu->write(marks_->word, ++marked_);
  }
  /// The driver has refused some of the work that fires the epochs up to `last`. The stream may still do the rest.
  void firing_refused(Stream stream, base::Word& done, std::uint64_t last) noexcept;
  /// The driver has refused an epoch that has no ring and never completes.
  void refuse_epoch() noexcept { ++refused_; }
  /// The epochs up to `last` have completed, or never will.
  bool fired(std::uint64_t last, const base::Word& done) const noexcept;
  /// The driver has refused rings, and the stream has completed what it took, as far as marks tell.
  bool rings_were_refused() const noexcept { return ring_refused_ && marks_passed(); }

  /// The GPU's context has failed: it runs nothing any more.
  bool lost() const noexcept { return lost_; }
  /// Queries the driver now and then. True: the GPU has just been lost; the caller fails the end, then calls `lose`.
  bool look_for_loss(base::Clock::time_point now) noexcept;
  void lose() noexcept {
    ring_refused_ = rung_ != nullptr;  // rings that have not happened never will
    lost_ = true;
  }

 private:
  bool marks_passed() const noexcept { return lost_ || marks_ == nullptr || base::reached(marks_->word, marked_); }

  device::Driver& driver_;
  const int gpu_;
  const backends::RungPut* const rung_;
  device::Reached slots_;
  OwnedProgress marks_;
  std::atomic<std::uint64_t> marked_{0};   // marks that the stream was given
  std::atomic<std::uint64_t> refused_{0};  // epochs without a ring that the driver refused
  std::atomic<bool> ring_refused_{false};  // of the last epoch
  std::atomic<bool> lost_{false};
  base::Clock::time_point next_query_{};
};

}  // namespace sluice::runtime
