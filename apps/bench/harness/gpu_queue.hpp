// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/queue.hpp"

#include <cstddef>
#include <span>

namespace bench {

struct GpuCalls;

/// Threads of a block that copies so many bytes, 16 at a time.
constexpr unsigned threads_to_copy(std::size_t bytes) {
  constexpr std::size_t kWarp = 32;
  return static_cast<unsigned>(kWarp * std::clamp<std::size_t>((bytes / 16 + kWarp - 1) / kWarp, 1, 32));
}

/// A GPU's stream that waits for no other stream, and its clock. No vendor's header is needed: its few functions come
/// from the driver that the process has loaded already.
class GpuQueue final : public Queue {
 public:
  /// `device` becomes the calling thread's current device.
  /// @throws std::runtime_error if there is no such GPU.
  GpuQueue(sluice::Stream::Kind kind, int device, long items_per_step, Synchronize synchronize, long items = kItems);
  ~GpuQueue() override;

  sluice::Stream stream() override;
  void run(std::function<void()> work) override;

  /// Loads a kernel of an image that was compiled for these GPUs, until the process ends. Call it while no stream
  /// waits: the driver would wait for the stream.
  void* load_kernel(std::span<const std::byte> image, const char* name) const;
  /// Launches one block of the kernel. `args`, its only parameter, is copied.
  template <class Args>
  void launch_kernel(void* kernel, Args args, unsigned threads) {
    launch_block(kernel, &args, threads);
  }

  /// Steps enqueued at once, if they are short. A GPU's stream holds about a thousand operations, and an item may be
  /// two; a host that enqueues more waits, here behind its own gate.
  static constexpr long kMost = 90;
  static constexpr long kItems = 400;
  /// With a timeline an item is two functions of the host, of which a stream takes 48.
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
  void* began_ = nullptr;
  void* ended_ = nullptr;
  void* graph_ = nullptr;  // ready to be launched
};

}  // namespace bench
