// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu_use.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace sluice::runtime {
namespace {

/// While nothing of ours is parked yet, which the driver would wait for. Whoever needs the kernels hears why there are
/// none: that is everybody where kernels wait.
void load_kernels(device::Driver& driver, int gpu) {
  try {
    driver.load_kernels(gpu);
  } catch (const std::exception& reason) {
    if (device::words_by_kernels()) throw;
    base::log(base::LogLevel::info, std::string("no kernels: ") + reason.what());
  }
}

/// The driver is asked through this stream whether the GPU is lost.
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

GpuUse::GpuUse(device::Driver& driver, int gpu, const backends::RungPut* rung)
    : driver_(driver), gpu_(gpu), rung_(rung) {
  load_kernels(driver, gpu);
  open_own_stream(driver, gpu);
  if (rung == nullptr) return;
  marks_ = &base::take_progress();
  try {
    reach_progress(driver, marks_->word);
  } catch (...) {
    base::give_back(*marks_);
    throw;
  }
}

GpuUse::~GpuUse() {
  if (marks_ != nullptr) base::give_back(*marks_);
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
  ring_refused_ = true;  // behind the mark, which is looked for from now on
}

bool GpuUse::fired(std::uint64_t last, const base::Word& done) const noexcept {
  const bool refused = ring_refused_;
  if (lost_ && rung_ == nullptr) return true;
  if (!marks_passed()) return false;
  // The stream has passed: what it has not rung for by now it never will, and whoever hears the bell says what has
  // completed.
  if (refused) last = std::min(last, rung_->epoch_of(rung_->bell().rung()));
  return done.value.load(std::memory_order_acquire) + refused_ >= last;
}

/// Nobody hears of work that a GPU does not do any more.
bool GpuUse::look_for_loss(base::Clock::time_point now) noexcept {
  constexpr auto kEvery = std::chrono::milliseconds(1);
  if (lost_ || now < ask_at_) return false;
  ask_at_ = now + kEvery;
  return driver_.lost(gpu_);
}

}  // namespace sluice::runtime
