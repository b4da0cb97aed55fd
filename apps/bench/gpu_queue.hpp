// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/queue.hpp"

namespace bench {

struct GpuCalls;

/// A stream of a GPU that waits for no other, and its clock. No vendor's header is needed: the few functions are taken
/// from the driver that the process has loaded already.
class GpuQueue final : public Queue {
 public:
  /// `device` becomes the calling thread's current one.
  /// @throws std::runtime_error where there is no such GPU.
  GpuQueue(sluice::Stream::Kind kind, int device, long items_per_step, Synchronize synchronize);
  ~GpuQueue() override;

  sluice::Stream stream() override;
  void run(std::function<void()> work) override;

  /// Steps enqueued at once, if they are short. A stream of a GPU holds about a thousand operations, and an item may be
  /// two; a host that enqueues more waits, here behind its own gate.
  static constexpr long kMost = 90;
  static constexpr long kItems = 400;

 private:
  void begin() override;
  void end() override;
  double between_ns() override;

  const GpuCalls& calls_;
  const sluice::Stream::Kind kind_;
  void* stream_ = nullptr;
  void* began_ = nullptr;
  void* ended_ = nullptr;
};

}  // namespace bench
