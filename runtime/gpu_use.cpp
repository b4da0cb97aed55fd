// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu_use.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace sluice::runtime {
namespace {

/// Loads them now, while no stream of ours is parked: the driver would wait for a parked stream. A failure is an error
/// only where kernels wait; elsewhere the first use that needs a kernel reports it.
void load_kernels(device::Driver& driver, int gpu) {
  try {
    driver.load_kernels(gpu);
  } catch (const std::exception& reason) {
    if (device::words_by_kernels()) throw;
    base::log(base::LogLevel::info, std::string("no kernels: ") + reason.what());
  }
}

/// Opens the stream by which the driver is queried whether the GPU is lost.
void open_own_stream(device::Driver& driver, int gpu) {
  try {
    (void)driver.own_stream(gpu);
  } catch (const device::GpuError& reason) {
    base::log(base::LogLevel::warn, std::string("nobody will be told if the GPU is lost: ") + reason.what());
  }
}

}  // namespace

void reach_progress(device::Driver& driver, base::Word& word) {
  device::reach_for_ever(driver, base::page_of(word), base::Progress::kPage);
}

OwnedProgress progress_for(device::Driver& driver) {
  OwnedProgress progress(&base::take_progress());
  progress->parking.silence();
  reach_progress(driver, progress->word);
  return progress;
}

GpuUse::GpuUse(device::Driver& driver, int gpu, const backends::RungPut* rung, bool sends)
    : driver_(driver), gpu_(gpu), rung_(rung) {
  load_kernels(driver, gpu);
  open_own_stream(driver, gpu);
  if (rung != nullptr || sends) marks_ = progress_for(driver);
}

bool GpuUse::reach_slots(const device::Extent& memory, std::string& why_not) {
  try {
    slots_ = device::reach(driver_, memory);
    return true;
  } catch (const device::StalePages& reason) {
    why_not = reason.what();
    return false;
  }
}

bool GpuUse::raise_behind(Stream stream, base::Word& word, std::uint64_t value) const noexcept {
  try {
    device::on_gpu(device::GpuCall(stream, gpu_), [&](device::Lane lane) { lane.gpu->write(word, value); });
    return true;
  } catch (const device::GpuError&) {
    return false;
  }
}

void GpuUse::mark_behind(Stream stream) noexcept {
  if (marks_ == nullptr) return;
  if (!raise_behind(stream, marks_->word, ++marked_)) marked_ = marks_->word.value.load();
}

void GpuUse::firing_refused(Stream stream, base::Word& done, std::uint64_t last) noexcept {
  if (rung_ == nullptr) {
    if (!raise_behind(stream, done, last)) ++refused_;
    return;
  }
  mark_behind(stream);
  ring_refused_ = true;  // after the mark, which `fired` waits for from now on
}

bool GpuUse::fired(std::uint64_t last, const base::Word& done) const noexcept {
  const bool refused = ring_refused_;
  if (lost_ && rung_ == nullptr) return true;
  if (!marks_passed()) return false;
  // The stream has completed its work: a ring that is missing now will never happen, and `done` counts the others.
  if (refused) last = std::min(last, rung_->epoch_of(rung_->bell().rung()));
  return done.value.load(std::memory_order_acquire) + refused_ >= last;
}

/// Work that a lost GPU does not do completes in no other way.
bool GpuUse::look_for_loss(base::Clock::time_point now) noexcept {
  constexpr auto kEvery = std::chrono::milliseconds(1);
  if (lost_ || now < next_query_) return false;
  next_query_ = now + kEvery;
  return driver_.lost(gpu_);
}

}  // namespace sluice::runtime
