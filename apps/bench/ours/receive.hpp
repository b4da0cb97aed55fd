// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/ours/ours.hpp"

namespace bench {

/// Enqueues wait, reading with --touch, and release. `queue`: null in program order.
inline void receive(const Workload& workload, Queue* queue, sluice::Stream stream, sluice::Receiver& receiver) {
  const std::byte* const payload = receiver.wait(stream).data();
  if (queue == nullptr) {
    touch(workload, payload);
  } else if (workload.options.touch) {
    queue->run([&workload, payload] { touch(workload, payload); });
  }
  receiver.release(stream);
}

}  // namespace bench
