// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/rivals/programs/raw_ping_pong.hpp"

namespace rivals {

SLUICE_KERNEL raw_ping_pong(RawPingPongArgs args) { ping_pong(sluice::kernel::Block(), args); }

}  // namespace rivals
