// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernel_plan.hpp"

#include <algorithm>

#include "device/kernels.hpp"

namespace sluice::detail {
namespace {

using device::Kernel;

/// Shape of a kernel's launch, where it is not one block with a thread for each end.
struct Shape {
  unsigned threads;
  unsigned blocks = 1;
  unsigned rows = 1;
};

/// Launches a kernel on all ends, in the order of the stream.
template <class End>
void launch(Stream stream, Kernel kernel, std::span<End> ends, std::uint64_t step, bool captured,
            std::optional<Shape> shape = {}) {
  if (ends.empty()) return;
  const Shape is = shape.value_or(Shape{device::threads_for(ends.size())});
  device::Ends<End> args{ends.data(), ends.size(), step, captured ? 0U : 1U};
  device::GpuCall(stream).launch(device::Launch{kernel, &args, is.threads, is.blocks, is.rows});
}

}  // namespace

KernelPlan::KernelPlan(device::Driver& driver, int gpu, const std::vector<PlanOut>& outs,
                       const std::vector<PlanIn>& ins)
    : senders_(outs), receivers_(ins) {
  try {
    const device::OnDevice current(driver, gpu);
    why_not_ = prepare(driver, gpu);
  } catch (const std::exception& reason) {
    why_not_ = reason.what();
  }
}

std::string KernelPlan::prepare(device::Driver& driver, int gpu) {
  driver.load_kernels(gpu);
  constexpr std::size_t kOfEnd = sizeof(kernel::Out) + sizeof(kernel::In) + 2 * sizeof(kernel::Count);
  device::Ledger& ledger = ledger_.emplace(&driver, 64 + kOfEnd * (senders_.size() + receivers_.size()));
  fault_ = ledger.take<std::uint64_t>();
  out_ = {ledger.take<kernel::Out>(senders_.size()), senders_.size()};
  in_ = {ledger.take<kernel::In>(receivers_.size()), receivers_.size()};
  for (std::size_t i = 0; i < out_.size(); ++i) {
    const auto end = senders_[i].core->by_kernel(ledger, &driver, *fault_);
    if (!end) return "no kernel can do the puts of: " + senders_[i].core->describe();
    out_[i] = *end;
    if (!end->rings) largest_ = std::max<std::size_t>(largest_, end->slot_bytes);
  }
  for (std::size_t i = 0; i < in_.size(); ++i) {
    const auto end = receivers_[i].core->by_kernel(ledger, &driver, *fault_);
    if (!end) return "no kernel can do the credits of: " + receivers_[i].core->describe();
    in_[i] = *end;
  }
  return {};
}

void KernelPlan::begin() {
  for (std::size_t i = 0; i < out_.size(); ++i) senders_[i].core->let_kernels_drive(out_[i]);
  for (std::size_t i = 0; i < in_.size(); ++i) receivers_[i].core->let_kernels_drive(in_[i]);
  ledger_->keep();
  begun_ = true;
}

void KernelPlan::acquire(Stream stream, std::uint64_t step, bool captured) {
  launch(stream, Kernel::acquire, out_, step, captured);
}

void KernelPlan::start(Stream stream, std::uint64_t step, bool captured) {
  constexpr std::size_t kOneBlock = 64 * 1024;  // not measured: more than one kernel costs
  constexpr std::size_t kOfThread = 16;         // bytes of one copy
  const auto channels = static_cast<unsigned>(out_.size());
  const unsigned threads = device::threads_for(largest_ / kOfThread);
  const auto count_launch = [&] {
    for (const kernel::Out& out : out_) out.count->launched += captured ? 0U : 1U;
  };
  if (largest_ <= kOneBlock) {
    launch(stream, Kernel::put, out_, step, captured, Shape{threads, channels});
    return count_launch();
  }
  constexpr std::size_t kMostBlocks = 256;
  const auto blocks = static_cast<unsigned>(std::clamp<std::size_t>(largest_ / kOneBlock, 1, kMostBlocks));
  launch(stream, Kernel::begin_put, out_, step, captured);
  count_launch();
  try {
    launch(stream, Kernel::copy, out_, step, captured, Shape{threads, blocks, channels});
    launch(stream, Kernel::end_put, out_, step, captured);
  } catch (const device::GpuError&) {  // the epochs that have begun will not complete
    for (const auto& sender : senders_) {
      if (!captured) sender.core->refuse_epoch();
    }
    throw;
  }
}

void KernelPlan::wait(Stream stream, std::uint64_t step, bool captured) {
  launch(stream, Kernel::wait, in_, step, captured);
  for (const kernel::In& in : in_) in.waits->launched += captured ? 0U : 1U;
}

void KernelPlan::release(Stream stream, bool captured) {
  launch(stream, Kernel::release, in_, 0, captured);
  for (const kernel::In& in : in_) in.releases->launched += captured ? 0U : 1U;
}

}  // namespace sluice::detail
