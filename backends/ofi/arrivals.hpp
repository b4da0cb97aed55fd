// SPDX-License-Identifier: Apache-2.0
// What has landed here, told by the numbers that came with puts: raises the signals.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/ofi/manner.hpp"
#include "backends/put.hpp"

namespace sluice::backends::ofi {

/// Which of `endpoints` the rail of a landing uses, so that landings with fewer rails than that are spread over them;
/// and the other way round.
constexpr std::size_t endpoint_of(std::uint64_t index, std::size_t rail, std::size_t endpoints) noexcept {
  return (index + rail) % endpoints;
}
constexpr std::size_t rail_of(std::uint64_t index, std::size_t endpoint, std::size_t endpoints) noexcept {
  return (endpoint + endpoints - index % endpoints) % endpoints;
}

/// The landings of a rank, by the index that travels with a put. Not thread-safe.
class Arrivals {
 public:
  explicit Arrivals(const Manner& manner) : manner_(manner) {}

  /// Returns its index. `signals`: one a rail.
  std::uint64_t add(std::span<const Signal> signals, const Slots& target);
  void remove(std::uint64_t index) noexcept { landings_[index].reset(); }

  /// A put of `number` has landed, at one of our endpoints.
  void landed(std::uint64_t number, std::size_t endpoint, std::size_t endpoints) noexcept;

 private:
  /// One rail of one landing.
  struct Lane {
    Signal signal;
    std::uint64_t seen = 0;   // every epoch up to this one has landed
    std::vector<bool> early;  // by epoch mod depth: landed before an earlier one
  };
  struct Landing {
    std::vector<Lane> lanes;
    bool moves_bytes = false;
  };

  std::uint64_t epoch_of(std::uint64_t number, std::uint64_t seen) const noexcept;
  static void land(Lane& lane, std::uint64_t epoch, bool moves_bytes) noexcept;

  const Manner& manner_;
  std::vector<std::unique_ptr<Landing>> landings_;
};

}  // namespace sluice::backends::ofi
