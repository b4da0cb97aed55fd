// SPDX-License-Identifier: Apache-2.0
// An event: the last point of a stream at which it was recorded.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "tests/emucuda/context.hpp"

namespace emucuda {

/// One recording. It outlives the next: a stream that waits for it already still waits for it.
struct Recording {
  std::atomic<bool> done{false};
  std::chrono::steady_clock::time_point when;  // once it is done
};

struct Event {
  Event(Context& owner, unsigned with_flags) : context(owner), flags(with_flags) {}

  std::shared_ptr<Recording> recording() {
    const std::lock_guard lock(mutex);
    return last;
  }

  Context& context;
  const unsigned flags;
  std::mutex mutex;
  std::shared_ptr<Recording> last;  // null: never recorded, which counts as done
};

}  // namespace emucuda
