// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ours/kernel_ping_pong.hpp"

namespace bench {

SLUICE_KERNEL bench_ping_pong(KernelPingPongArgs args) { ping_pong(sluice::kernel::Block(), args); }

}  // namespace bench
