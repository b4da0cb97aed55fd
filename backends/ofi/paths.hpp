// SPDX-License-Identifier: Apache-2.0
// The paths to one peer: pairs of a rail here and one there. Each is tried by a probe in each direction before anything
// else is sent, and again and again later, since the end of a path is not the end of the peer.
//
// A probe writes a few unused bytes and completes when they have been delivered. The peer may be stopped, or may start
// late. So time counts against a probe only while the peer answers questions over its socket. A probe waits its turn
// behind data, and its answer behind the data of the peer, which a slow network takes long for: each end tells how much
// there is.
#pragma once

#include "backends/ofi/station.hpp"

namespace sluice::backends::ofi {

class Paths : public PathFinder {
 public:
  /// The peer is dead.
  virtual void lost() = 0;
  /// Once ready: where the peer's puts land.
  const Endpoints& endpoints() const noexcept { return endpoints_; }

 protected:
  Endpoints endpoints_;
};

/// `here`: the peer is on this host. `near`: rails of smaller numbers are on the nearest devices.
std::unique_ptr<Paths> find_paths(Station& station, Destination& there, Address ours, Address theirs, bool here,
                                  std::size_t near);

}  // namespace sluice::backends::ofi
