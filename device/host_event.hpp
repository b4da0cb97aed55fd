// SPDX-License-Identifier: Apache-2.0
// A point between the items of a host stream, and how threads wait for one.
#pragma once

#include <sched.h>

#include <cstdint>
#include <mutex>

#include "device/host_stream.hpp"

namespace sluice {

/// Raised once. `stop` is set before: the stream had stopped in front of it.
struct HostEvent::Impl {
  base::Word raised;
  base::Parking parking;
  HostStream::Impl::Stop stop;

  bool reached() const noexcept { return base::reached(raised, 1); }
};

/// Like an event, for one point after the other: the n-th raises it to n. Once a stream has stopped in front of a
/// point, all that wait for it stop.
struct HostStream::Impl::Turns {
  base::Word raised;
  base::Parking parking;
  std::mutex mutex;
  Stop stop;  // with the mutex

  bool reached(std::uint64_t turn) const noexcept { return base::reached(raised, turn); }
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
