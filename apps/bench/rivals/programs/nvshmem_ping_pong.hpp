// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace rivals {

/// The arguments of a ping-pong by kernels alone, in memory of the symmetric heap.
struct NvshmemPingPongArgs {
  static constexpr const char* kKernel = "nvshmem_ping_pong";
  char* target;
  const char* source;
  std::size_t slots;
  std::size_t bytes;      ///< of a slot
  std::uint64_t* signal;  ///< the number of messages that have arrived
  int peer;
  std::uint64_t before;  ///< round trips of earlier launches
  std::uint64_t rounds;  ///< round trips of this launch
  bool first;            ///< true on the rank that sends first
};

}  // namespace rivals
