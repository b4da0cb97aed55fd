// SPDX-License-Identifier: Apache-2.0
// A plan that kernels of ours drive, because it is captured into graphs: the host cannot pass a replayed graph the
// number of its epoch.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/receiver.hpp"
#include "runtime/sender.hpp"

namespace sluice::detail {

/// Channels of a plan advance together: their epochs differ by a constant.
struct PlanOut {
  std::shared_ptr<SenderCore> core;
  std::uint64_t first = 0;  ///< epoch before the plan's first start
};
struct PlanIn {
  std::shared_ptr<ReceiverCore> core;
  std::uint64_t first_wait = 0;
  std::uint64_t first_release = 0;
};

class KernelPlan {
 public:
  /// Prepares all that kernels need, once the channels are connected, bound to streams of the driver's GPUs and idle:
  /// behind a parked stream it would be too late. Keeps references to the plan's channels.
  KernelPlan(device::Driver& driver, int gpu, const std::vector<PlanOut>& outs, const std::vector<PlanIn>& ins);

  /// Why kernels cannot drive the plan; empty: they can.
  const std::string& why_not() const noexcept { return why_not_; }
  /// From now on kernels drive it: they count every epoch in memory. With the registry's mutex.
  void begin();
  bool begun() const noexcept { return begun_; }

  // In the order of the stream. `step`: the number of the start, or wait, by which the user knows the slots.
  // `captured`: the stream captures it. @throws device::GpuError
  void acquire(Stream stream, std::uint64_t step, bool captured);
  void start(Stream stream, std::uint64_t step, bool captured);
  void wait(Stream stream, std::uint64_t step, bool captured);
  void release(Stream stream, bool captured);

 private:
  std::string prepare(device::Driver& driver, int gpu);

  const std::vector<PlanOut>& senders_;
  const std::vector<PlanIn>& receivers_;
  std::string why_not_;
  std::optional<device::Ledger> ledger_;
  std::uint64_t* fault_ = nullptr;
  std::span<kernel::Out> out_;
  std::span<kernel::In> in_;
  std::size_t largest_ = 0;  // slot that a kernel copies, in bytes
  bool begun_ = false;
};

}  // namespace sluice::detail
