// SPDX-License-Identifier: Apache-2.0
// For operations of a GPU's stream: what the background carries out on another stream of that GPU.
#pragma once

#include <mpi.h>

#include <memory>
#include <utility>

#include "device/handshake.hpp"
#include "dialects/common/background.hpp"
#include "dialects/common/operation.hpp"
#include "dialects/common/outcome.hpp"

namespace sluice::stream_mpi {

/// The GPU's stream itself may be parked, or captured, or destroyed by then. Its owner, as of `Handover`, uses it.
class Beside {
 public:
  /// By the stream. The background waits until the stream has reached `start`.
  void leave(const Place& start) { start_ = start; }
  bool left() const noexcept { return start_.handshake != nullptr; }
  /// By the background: `work(own)` enqueues on the library's own stream what waits for no peer, and returns whether
  /// something is left for later. True: the background goes on later. False: done, or the wait does the rest.
  template <class Work>
  bool go_on(detail::EndsWait& waits, Work work) {
    device::Handshake& handshake = *start_.handshake;
    const bool ended = handshake.ended();
    if (handshake.given_up()) return false;
    if (!handshake.signalled(start_.number)) {
      if (ended) throw Refused(MPI_ERR_OTHER, "a GPU's stream does not run any more");
      return waits.look_soon(), true;
    }
    used_ = true;  // also if the driver refuses a part of the work
    return work(handshake.own_stream());
  }
  /// By the stream, for `Operation::take_back`.
  std::shared_ptr<device::Handshake> take_back() noexcept {
    const Place start = std::exchange(start_, {});
    return std::exchange(used_, false) ? start.handshake : nullptr;
  }

 private:
  Place start_;
  bool used_ = false;
};

}  // namespace sluice::stream_mpi
