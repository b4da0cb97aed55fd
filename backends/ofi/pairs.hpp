// SPDX-License-Identifier: Apache-2.0
// Which rail of one rank goes with which rail of another. Knows nothing of libfabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/ofi/address.hpp"

namespace sluice::backends::ofi {

/// How a rail reaches an endpoint of the peer, as its own host's routes say; the better, the higher.
enum class Grade : std::uint8_t {
  none,   ///< not at all
  other,  ///< by another device than the rail's
  own     ///< by its own device
};

/// One for each of our rails and each endpoint of the peer.
struct Grades {
  std::size_t columns = 0;  ///< endpoints of the peer
  std::vector<Grade> all;

  std::size_t rows() const noexcept { return columns == 0 ? 0 : all.size() / columns; }
  Grade at(std::size_t row, std::size_t column) const noexcept { return all[row * columns + column]; }
};

/// `here`: the peer is on this host, so what leads to ourselves leads to it.
Grades grades_of(const Address& ours, const Address& theirs, bool here);

struct Pair {
  std::size_t ours = 0;
  std::size_t theirs = 0;
  bool operator==(const Pair&) const = default;
};

/// Rails that reach each other, each in one pair at most. If any reach each other by their own devices both ways, these
/// alone. Those on the same network first, then the nearest. Both ends choose the same: `first` differs between them.
std::vector<Pair> pair_rails(const Address& ours, const Address& theirs, const Grades& from_here,
                             const Grades& from_there, bool first);

}  // namespace sluice::backends::ofi
