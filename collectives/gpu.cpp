// SPDX-License-Identifier: Apache-2.0
// Prepares a collective before a stream of a GPU carries out its steps. Memory cannot be mapped, nor a kernel loaded,
// while a stream waits, so all of that is done before the first step.
#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "collectives/operation.hpp"
#include "device/memory.hpp"
#include "runtime/channel.hpp"
#include "runtime/fate.hpp"
#include "runtime/handles.hpp"
#include "runtime/plan.hpp"
#include "runtime/receiver.hpp"
#include "runtime/sender.hpp"

namespace sluice::collectives {

Memory Operation::allocate(std::size_t bytes) {
  return gpu_of_memory_ < 0 ? context_.allocate(bytes) : context_.allocate(bytes, Space::device, gpu_of_memory_);
}

bool Operation::combines_numbers() const noexcept {
  return std::ranges::any_of(
      schedule_.steps, [](Step::Kind kind) { return kind >= Step::Kind::combine; }, &Step::kind);
}

void Operation::prepare_for_gpu(Stream stream) {
  try {
    const auto [gpu, capture] = device::driver(stream.kind())->look_at(stream.handle());
    if (gpu_ >= 0 && gpu != gpu_)
      throw error(Code::misuse,
                  "a stream of GPU " + std::to_string(gpu) + ", and before one of GPU " + std::to_string(gpu_));
    if (gpu_ < 0 && capture != 0)
      throw error(Code::unsupported, "the stream captures a graph: the first start maps memory, outside of graphs");
    if (gpu_ < 0) map_for_gpu(stream, gpu);
    gpu_ = gpu;
    note_capture(stream, capture);
  } catch (const device::InvalidCapture& reason) {  // there will be no graph
    leave_capture();
    throw error(Code::misuse, reason.what());
  } catch (const device::GpuError& reason) {
    throw error(Code::out_of_resources, reason.what());
  }
}

void Operation::map_for_gpu(Stream stream, int gpu) {
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    runtime::ChannelEnd& end = end_of(i);
    end.check_bindable(stream);
    end.bind_to_gpu(stream);
  }
  reach_from(*device::driver(stream.kind()), gpu);
  // Last, since a channel in a plan takes no other verbs.
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    End& end = ends_[i];
    if (detail::PlanAccess::core(end.plan) != nullptr) continue;  // from a start that failed
    Plan plan = context_.plan();
    if (schedule_.messages[i].sends)
      plan.add(end.sender);
    else
      plan.add(end.receiver);
    plan.commit(stream);
    end.plan = std::move(plan);
  }
}

void Operation::note_capture(Stream stream, std::uint64_t now) {
  if (now == capture_) return;
  if (capture_ != 0) end_capture();
  if (now == 0) return;
  if (state_ == State::started) throw error(Code::misuse, "wait in a graph, after a start outside of it");
  capture_ = now;
  captured_ = 0;
  try {
    for (const End& end : ends_) detail::PlanAccess::core(end.plan)->join_capture(stream);
  } catch (...) {
    leave_capture();
    throw;
  }
}

/// A graph leaves every channel at the slot where it finds it. That of a rank which receives nothing would, too; but
/// the graphs of its peers would not.
void Operation::end_capture() {
  const bool half = state_ == State::started;
  leave_capture();
  const std::string refused = "the graph that was captured last must not be launched: it has ";
  if (half) throw error(Code::misuse, refused + "a start without its wait");
  if (captured_ % kLandings != 0)
    throw error(Code::misuse, refused + std::to_string(captured_) + " rounds, which is no multiple of " +
                                  std::to_string(kLandings) + ", and messages land in so many places in turn");
}

void Operation::leave_capture() noexcept {
  if (std::exchange(capture_, 0) == 0) return;
  for (const End& end : ends_) detail::PlanAccess::core(end.plan)->leave_capture();
  if (state_ == State::started) state_ = State::idle;
}

void Operation::lose_graph(const char* why) {
  state_ = State::idle;
  fate_->check();
  throw error(Code::misuse, std::string("the graph that is captured must not be launched: ") + why);
}

void Operation::carry_out_by_plan(Stream stream, const Step& step) {
  End& end = ends_[step.message];
  switch (step.kind) {
    case Step::Kind::put: return end.plan.start(stream);
    case Step::Kind::wait:
      end.plan.wait(stream);
      end.landed = end.plan.slot(end.receiver);
      return;
    case Step::Kind::release: return end.plan.release(stream);
    default: end.plan.acquire(stream);
  }
}

bool Operation::can_advance() noexcept {
  return next_ >= schedule_.steps.size() || !would_park(schedule_.steps[next_]);
}

/// An acquire may still wait for the engine's next turn, which needs no stream.
bool Operation::would_park(const Step& step) noexcept {
  if (step.kind >= Step::Kind::copy) return false;
  runtime::ChannelEnd& end = end_of(step.message);
  switch (step.kind) {
    case Step::Kind::put: return !static_cast<detail::SenderCore&>(end).may_put();
    case Step::Kind::wait: return !static_cast<detail::ReceiverCore&>(end).may_take();
    case Step::Kind::acquire: return end.rung() != nullptr && !end.failed() && !base::reached(end.done, end.epoch());
    default: return false;
  }
}

bool Operation::is_being_copied(const Step& step) const noexcept {
  if (gpu_ < 0) return false;
  const auto& end = static_cast<const detail::ReceiverCore&>(*detail::ChannelAccess::end(ends_[step.message].receiver));
  return end.has_landed(end.epoch() + 1);
}

void Operation::reach_from(device::Driver& driver, int gpu) {
  const device::OnDevice current(driver, gpu);
  const bool by_kernels = combines_numbers();
  if (by_kernels) driver.load_kernels(gpu);
  const auto reach = [&](const Slice& memory) {
    if (memory.bytes() == 0) return;
    const device::Extent extent = runtime::extent_of(memory);
    if (extent.driver == nullptr)
      std::ranges::move(device::reach(driver, extent), std::back_inserter(shared_->reached));
    if (by_kernels && !driver.kernels_reach(memory.data()))
      throw error(Code::unsupported, "kernels of GPU " + std::to_string(gpu) + " do not reach all of its memory");
  };
  for (const Slice& slice : schedule_.slices) reach(slice);
  for (const Memory& memory : shared_->scratches) reach(memory.all());
  for (const Memory& memory : shared_->landings) reach(memory.all());
  device::reach_for_ever(driver, base::page_of(shared_->passed.word), base::Progress::kPage);
  shared_->passed.parking.silence();
}

}  // namespace sluice::collectives
