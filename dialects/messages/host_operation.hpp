// SPDX-License-Identifier: Apache-2.0
// Operations that only the thread of a host stream carries out.
#pragma once

#include "base/limit.hpp"
#include "dialects/common/operation.hpp"
#include "dialects/common/outcome.hpp"
#include "rma/rest.hpp"

#include <chrono>
#include <optional>
#include <thread>

namespace sluice::stream_mpi {

inline constexpr const char* kOnGpu = "a message of Cray's or MPICH's dialect, carried out by a stream of a GPU";

class HostOperation : public Operation {
 public:
  void enqueue_start(Stream /*stream*/) final { throw Refused(kUnsupported, kOnGpu); }
  void enqueue_wait(Stream /*stream*/) final { throw Refused(kUnsupported, kOnGpu); }
  void close(std::optional<Timeout> /*timeout*/) final {}
};

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
