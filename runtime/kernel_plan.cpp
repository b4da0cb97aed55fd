// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernel_plan.hpp"

#include <algorithm>

#include "device/kernels.hpp"

namespace sluice::detail {
namespace {

using device::Kernel;
using device::Launch;
using device::threads_for;

/// A kernel, in the order of the stream.
template <class Args>
void launch(Stream stream, Kernel kernel, Args args, unsigned threads, unsigned blocks = 1, unsigned rows = 1) {
  device::GpuCall call(stream);
  call.launch(Launch{kernel, &args, threads, blocks, rows});
}

}  // namespace

KernelPlan::KernelPlan(device::Driver& driver, std::vector<std::shared_ptr<SenderCore>> out,
                       std::vector<std::shared_ptr<ReceiverCore>> in)
    : senders_(std::move(out)), receivers_(std::move(in)) {
  try {
    why_not_ = prepare(driver);
  } catch (const std::exception& reason) {
    why_not_ = reason.what();
  }
}

std::string KernelPlan::prepare(device::Driver& driver) {
  driver.load_kernels(driver.current_device());
  constexpr std::size_t kOfEnd = sizeof(kernel::Out) + sizeof(kernel::In) + 2 * sizeof(kernel::Count);
  device::Ledger& ledger = ledger_.emplace(&driver, 64 + kOfEnd * (senders_.size() + receivers_.size()));
  fault_ = ledger.take<std::uint64_t>();
  out_ = {ledger.take<kernel::Out>(senders_.size()), senders_.size()};
  in_ = {ledger.take<kernel::In>(receivers_.size()), receivers_.size()};
  for (std::size_t i = 0; i < out_.size(); ++i) {
    const auto end = senders_[i]->by_kernel(ledger, &driver, *fault_);
    if (!end) return "no kernel can do the puts of: " + senders_[i]->describe();
    out_[i] = *end;
    if (!end->rings) largest_ = std::max<std::size_t>(largest_, end->slot_bytes);
  }
  for (std::size_t i = 0; i < in_.size(); ++i) {
    const auto end = receivers_[i]->by_kernel(ledger, &driver, *fault_);
    if (!end) return "no kernel can do the credits of: " + receivers_[i]->describe();
    in_[i] = *end;
  }
  return {};
}

void KernelPlan::begin() {
  for (std::size_t i = 0; i < out_.size(); ++i) senders_[i]->let_kernels_put(out_[i]);
  for (std::size_t i = 0; i < in_.size(); ++i) receivers_[i]->let_kernels_wait(in_[i]);
  ledger_->keep();
  begun_ = true;
}

void KernelPlan::acquire(Stream stream, std::uint64_t step, bool captured) {
  if (out_.empty()) return;
  launch(stream, Kernel::acquire, args<device::AcquireArgs, kernel::Out>(out_, step, captured),
         threads_for(out_.size()));
}

void KernelPlan::start(Stream stream, std::uint64_t step, bool captured) {
  if (out_.empty()) return;
  constexpr std::size_t kOneBlock = 64 * 1024;  // not measured: more than one kernel costs
  constexpr std::size_t kOfThread = 16;         // bytes of one copy
  const auto channels = static_cast<unsigned>(out_.size());
  const unsigned threads = threads_for(largest_ / kOfThread);
  const auto count_launch = [&] {
    for (const kernel::Out& out : out_) out.count->launched += captured ? 0U : 1U;
  };
  if (largest_ <= kOneBlock) {
    launch(stream, Kernel::put, args<device::PutArgs, kernel::Out>(out_, step, captured), threads, channels);
    return count_launch();
  }
  constexpr std::size_t kMostBlocks = 256;
  const auto blocks = static_cast<unsigned>(std::clamp<std::size_t>(largest_ / kOneBlock, 1, kMostBlocks));
  const unsigned one_each = threads_for(channels);
  launch(stream, Kernel::begin_put, args<device::BeginPutArgs, kernel::Out>(out_, step, captured), one_each);
  count_launch();
  try {
    launch(stream, Kernel::copy, args<device::CopyArgs, kernel::Out>(out_, step, captured), threads, blocks, channels);
    launch(stream, Kernel::end_put, args<device::EndPutArgs, kernel::Out>(out_, step, captured), one_each);
  } catch (const device::GpuError&) {  // what has begun will not end
    for (const auto& sender : senders_) {
      if (!captured) sender->refuse_epoch();
    }
    throw;
  }
}

void KernelPlan::wait(Stream stream, std::uint64_t step, bool captured) {
  if (in_.empty()) return;
  launch(stream, Kernel::wait, args<device::WaitArgs, kernel::In>(in_, step, captured), threads_for(in_.size()));
  for (const kernel::In& in : in_) in.waits->launched += captured ? 0U : 1U;
}

void KernelPlan::release(Stream stream, bool captured) {
  if (in_.empty()) return;
  launch(stream, Kernel::release, args<device::ReleaseArgs, kernel::In>(in_, 0, captured), threads_for(in_.size()));
  for (const kernel::In& in : in_) in.releases->launched += captured ? 0U : 1U;
}

}  // namespace sluice::detail
