// SPDX-License-Identifier: Apache-2.0
// A point between the items of a host stream, and how threads wait for one.
#pragma once

#include <sched.h>

#include "device/host_stream.hpp"

namespace sluice {

/// Raised once. `stop` is set before: the stream had stopped in front of it.
struct HostEvent::Impl {
  base::Word raised;
  base::Parking parking;
  HostStream::Impl::Stop stop;

  bool reached() const noexcept { return base::reached(raised, 1); }
};

namespace device {

// If a stream and a host share a core, the one that waits must yield the core to the other, and not spin
// (sluice-bench stream, the host that waits every step). Alone on its core, a thread that yields checks often enough.
template <class Ready>
bool yield_until(Ready ready) {
  const auto end = base::Clock::now() + base::kYielding;
  do {
    if (ready()) return true;
    sched_yield();
  } while (base::Clock::now() < end);
  return false;
}

}  // namespace device
}  // namespace sluice
