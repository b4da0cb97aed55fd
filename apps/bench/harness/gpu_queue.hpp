// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/queue.hpp"

#include <cstddef>
#include <span>

namespace bench {

struct GpuCalls;

/// Of a block that copies so many bytes, 16 at a time.
constexpr unsigned threads_to_copy(std::size_t bytes) {
  constexpr std::size_t kWarp = 32;
  return static_cast<unsigned>(kWarp * std::clamp<std::size_t>((bytes / 16 + kWarp - 1) / kWarp, 1, 32));
}

/// A stream of a GPU that waits for no other, and its clock. No vendor's header is needed: the few functions are taken
/// from the driver that the process has loaded already.
class GpuQueue final : public Queue {
 public:
  /// `device` becomes the calling thread's current one.
  /// @throws std::runtime_error where there is no such GPU.
  GpuQueue(sluice::Stream::Kind kind, int device, long items_per_step, Synchronize synchronize, long items = kItems);
  ~GpuQueue() override;

  sluice::Stream stream() override;
  void run(std::function<void()> work) override;

  /// A kernel of an image that was compiled for these GPUs, for as long as the process lives. While no stream waits:
  /// the driver would wait for it.
  void* load_kernel(std::span<const std::byte> image, const char* name) const;
  /// One block of it. `args`, its only parameter, is copied.
  template <class Args>
  void launch_kernel(void* kernel, Args args, unsigned threads) {
    launch_block(kernel, &args, threads);
  }

  /// Steps enqueued at once, if they are short. A stream of a GPU holds about a thousand operations, and an item may be
  /// two; a host that enqueues more waits, here behind its own gate.
  static constexpr long kMost = 90;
  static constexpr long kItems = 400;
  /// With a timeline, for which an item is two functions of the host, of which a stream takes 48.
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
