// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/rivals/programs/nvshmem_ping_pong.hpp"

#include <nvshmem.h>
#include <nvshmemx.h>

namespace rivals {

__device__ void put(const NvshmemPingPongArgs& args, std::uint64_t round) {
  const std::size_t at = round % args.slots * args.bytes;
  if (args.bytes > 0) {
    nvshmemx_putmem_signal_block(args.target + at, args.source + at, args.bytes, args.signal, round + 1,
                                 NVSHMEM_SIGNAL_SET, args.peer);
  } else if (threadIdx.x == 0) {
    nvshmemx_signal_op(args.signal, round + 1, NVSHMEM_SIGNAL_SET, args.peer);
  }
}

/// No credits are needed, because each message shows that the previous one was read.
extern "C" __global__ void nvshmem_ping_pong(NvshmemPingPongArgs args) {
  for (std::uint64_t round = args.before; round < args.before + args.rounds; ++round) {
    if (args.first) put(args, round);
    if (threadIdx.x == 0) nvshmem_signal_wait_until(args.signal, NVSHMEM_CMP_GE, round + 1);
    __syncthreads();
    if (!args.first) put(args, round);
  }
}

}  // namespace rivals
