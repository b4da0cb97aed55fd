// SPDX-License-Identifier: Apache-2.0
// Waits for what no thread wakes the waiting one for.
#pragma once

#include "base/limit.hpp"
#include "rma/rest.hpp"

#include <sluice/types.hpp>

#include <chrono>
#include <thread>

namespace sluice::stream_mpi {

/// Calls `advance()` until it returns true. Returns false if that lasts longer than `timeout`.
template <class Advance>
bool wait_until(Timeout timeout, Advance advance) {
  constexpr auto kYields = std::chrono::milliseconds(1);
  constexpr auto kNap = std::chrono::microseconds(50);
  base::Limit limit(timeout);
  for (rma::Rest rest(0); !advance();) {
    if (limit.over()) return false;
    if (!rest.spin_or_yield(kYields)) std::this_thread::sleep_for(kNap);
  }
  return true;
}

}  // namespace sluice::stream_mpi
