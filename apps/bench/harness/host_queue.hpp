// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/queue.hpp"

#include <cstddef>
#include <stdexcept>

namespace bench {

class HostQueue final : public Queue {
 public:
  HostQueue(long items_per_step, Synchronize synchronize)
      : Queue(kItems, items_per_step, kMaxSteps, std::move(synchronize)),
        // All steps must fit: a full stream blocks the host, which could then not open the gate.
        stream_(sluice::HostStream::Options{
            .capacity = static_cast<std::size_t>(std::max(kItems, steps() * items_per_step + kGateAndStamps)),
            .stop_after_failure = true}) {}

  sluice::Stream stream() override { return sluice::Stream::host(stream_); }
  void run(std::function<void()> work) override { stream_.run(std::move(work)); }

  /// The most measured steps that are enqueued at once.
  static constexpr long kMaxSteps = 200;

 private:
  static constexpr long kItems = 65536;  // the default capacity of a HostStream
  static constexpr long kGateAndStamps = 3;

  void begin() override {
    stream_.run([this] { began_ = now_ns(); });
  }
  void end() override {
    stream_.run([this] { ended_ = now_ns(); });
  }
  double between_ns() override { return ended_ - began_; }
  void capture(const std::function<void()>& /*work*/) override {
    throw std::logic_error("a host stream has no graphs");
  }
  void launch_graph() override {}

  double began_ = 0;
  double ended_ = 0;
  sluice::HostStream stream_;
};

}  // namespace bench
