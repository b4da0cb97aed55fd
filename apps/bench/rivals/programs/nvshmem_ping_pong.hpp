// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace rivals {

/// Arguments of a ping-pong that a kernel does by itself, on memory of the symmetric heap.
struct NvshmemPingPongArgs {
  static constexpr const char* kKernel = "nvshmem_ping_pong";
  char* target;
  const char* source;
  std::size_t slots;
  std::size_t bytes;      ///< of a slot
  std::uint64_t* signal;  ///< the last round whose message has arrived
  int peer;
  std::uint64_t before;  ///< rounds of earlier launches
  std::uint64_t rounds;
  bool first;  ///< true for the rank that begins
};

}  // namespace rivals
