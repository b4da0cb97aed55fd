// SPDX-License-Identifier: Apache-2.0
// Operations that only the thread of a host stream carries out.
#pragma once

#include "dialects/common/operation.hpp"
#include "dialects/common/outcome.hpp"
#include "dialects/common/wait_until.hpp"

#include <optional>

namespace sluice::stream_mpi {

inline constexpr const char* kOnGpu = "a message of Cray's or MPICH's dialect, carried out by a stream of a GPU";

class HostOperation : public Operation {
 public:
  void enqueue_start(Stream /*stream*/) final { throw Refused(kUnsupported, kOnGpu); }
  void enqueue_wait(Stream /*stream*/) final { throw Refused(kUnsupported, kOnGpu); }
  void close(std::optional<Timeout> /*timeout*/) final {}
};

}  // namespace sluice::stream_mpi
