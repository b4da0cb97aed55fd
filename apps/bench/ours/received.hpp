// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/ours/ours.hpp"

namespace bench {

/// With --touch, reads a payload: now, or on the queue if there is one.
inline void read(const Workload& workload, Queue* queue, const std::byte* payload) {
  if (queue == nullptr) {
    touch(workload, payload);
  } else if (workload.options.touch) {
    queue->run([&workload, payload] { touch(workload, payload); });
  }
}

/// With --touch, writes a source: now, or on the queue if there is one.
inline void compute(const Workload& workload, Queue* queue, std::byte* source) {
  if (queue == nullptr) {
    compute(workload, source);
  } else if (workload.options.touch) {
    queue->run([&workload, source] { compute(workload, source); });
  }
}

}  // namespace bench
