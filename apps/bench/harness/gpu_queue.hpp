// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/queue.hpp"

#include <cstddef>
#include <span>

namespace bench {

struct GpuCalls;

/// The number of threads with which a block copies so many bytes: one for every 16 bytes, in whole warps, at most 1024.
constexpr unsigned threads_to_copy(std::size_t bytes) {
  constexpr std::size_t kWarp = 32;
  return static_cast<unsigned>(kWarp * std::clamp<std::size_t>((bytes / 16 + kWarp - 1) / kWarp, 1, 32));
}

/// A GPU's stream that does not wait for the default stream, measured by two events. It needs no vendor's header: it
/// looks up a few functions in the driver that the process has loaded.
class GpuQueue final : public Queue {
 public:
  /// Makes `device` the calling thread's current device.
  /// @throws std::runtime_error if there is no such GPU.
  GpuQueue(sluice::Stream::Kind kind, int device, long items_per_step, Synchronize synchronize, long items = kItems);
  ~GpuQueue() override;

  sluice::Stream stream() override;
  void run(std::function<void()> work) override;

  /// Loads a kernel from the image of a compiled file; it stays loaded until the process ends. Call it while no stream
  /// waits for a peer: the driver would wait for that stream.
  void* load_kernel(std::span<const std::byte> image, const char* name) const;
  /// Enqueues one block of the kernel, whose only parameter is a copy of `args`.
  template <class Args>
  void launch_kernel(void* kernel, Args args, unsigned threads) {
    launch_block(kernel, &args, threads);
  }

  /// The most measured steps that are enqueued at once.
  static constexpr long kMaxSteps = 90;
  /// The items that a stream holds. A GPU's stream takes about a thousand operations, and an item may be two of them.
  /// Enqueueing more blocks the host, which could then not open the gate.
  static constexpr long kItems = 400;
  /// As kItems, but with a timeline. Then an item is two calls of host functions, and a stream takes 48 of those.
  static constexpr long kItemsOfTimeline = 12;

 private:
  void begin() override;
  void end() override;
  double between_ns() override;
  void capture(const std::function<void()>& work) override;
  void launch_graph() override;
  void launch_block(void* kernel, void* args, unsigned threads);

  const GpuCalls& calls_;
  const sluice::Stream::Kind kind_;
  void* stream_ = nullptr;
  void* began_ = nullptr;  // an event, like ended_
  void* ended_ = nullptr;
  void* graph_ = nullptr;  // instantiated
};

}  // namespace bench
