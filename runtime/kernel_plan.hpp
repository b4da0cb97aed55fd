// SPDX-License-Identifier: Apache-2.0
// A plan that is driven by kernels of ours, because it is captured into graphs: what a graph replays cannot be told by
// the host which epoch it is.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/receiver.hpp"
#include "runtime/sender.hpp"

namespace sluice::detail {

class KernelPlan {
 public:
  /// Makes all ready, once the channels are connected, bound to streams of the driver's GPUs and idle: behind a parked
  /// stream it would be too late.
  KernelPlan(device::Driver& driver, std::vector<std::shared_ptr<SenderCore>> out,
             std::vector<std::shared_ptr<ReceiverCore>> in);

  /// Why kernels cannot drive the plan; empty: they can.
  const std::string& why_not() const noexcept { return why_not_; }
  /// From now on they do: every epoch is taken from memory that they advance. With the world's mutex.
  void begin();
  /// They do.
  bool begun() const noexcept { return begun_; }

  // In the order of the stream. `step`: which start, or wait, it is for whoever uses the slots. `captured`: the stream
  // captures it. @throws device::GpuError
  void acquire(Stream stream, std::uint64_t step, bool captured);
  void start(Stream stream, std::uint64_t step, bool captured);
  void wait(Stream stream, std::uint64_t step, bool captured);
  void release(Stream stream, bool captured);

 private:
  std::string prepare(device::Driver& driver);
  template <class Args, class End>
  Args args(std::span<const End> ends, std::uint64_t step, bool captured) const {
    return Args{{ends.data(), ends.size(), step, captured ? 0U : 1U}};
  }

  std::vector<std::shared_ptr<SenderCore>> senders_;
  std::vector<std::shared_ptr<ReceiverCore>> receivers_;
  std::string why_not_;
  std::optional<device::Ledger> ledger_;
  std::uint64_t* fault_ = nullptr;
  std::span<kernel::Out> out_;
  std::span<kernel::In> in_;
  std::size_t largest_ = 0;  // slot that a kernel copies, in bytes
  bool begun_ = false;
};

}  // namespace sluice::detail
