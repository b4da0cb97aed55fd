// SPDX-License-Identifier: Apache-2.0
// The receiver learns of a put by a number that travels with the data and arrives in the receiver's completion queue
// (Notice::number). The engine raises the signal that the number names.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/access.hpp"
#include "backends/ofi/manner.hpp"

namespace sluice::backends::ofi {

/// Endpoints of this rank that a peer can reach, by number, the nearest first.
struct Endpoints {
  std::vector<std::size_t> numbers;
  std::size_t near = 1;  ///< the first so many are as near as the first

  /// The endpoint of a landing's rail. Landings begin in turn at one of the near endpoints, so that those with few
  /// rails use the nearest devices.
  std::size_t of(std::uint64_t index, std::size_t rail) const noexcept {
    return numbers[(index % near + rail) % numbers.size()];
  }
};

/// The landings of a rank, and the counters of its offers, by the index that travels with a put. Not thread-safe.
class Arrivals {
 public:
  explicit Arrivals(const Manner& manner) : manner_(manner) {}

  /// Returns its index. `signals`: one a rail, no more than there are endpoints.
  std::uint64_t add(std::span<const Signal> signals, const Slots& target, const Endpoints& endpoints);
  /// Returns the index of the counters, each of which rises by 1 with each put that names it.
  std::uint64_t add(Counters counters);
  /// `is_last`: no number of it can arrive any more, so that others may get the index.
  void remove(std::uint64_t index, bool is_last = true) noexcept;

  /// A put of `number` has landed, at one of our endpoints.
  void landed(std::uint64_t number, std::size_t endpoint) noexcept;

 private:
  /// One rail of one landing.
  struct Lane {
    Signal signal;
    std::size_t endpoint = 0;
    std::uint64_t seen = 0;   // every epoch up to this one has landed
    std::vector<bool> early;  // by epoch mod depth: landed before an earlier one
  };
  struct Landing {
    std::vector<Lane> lanes;
    bool moves_bytes = false;
    Counters counters;  // instead of lanes
  };

  std::uint64_t free_index();

  /// `number` is as `manner` says.
  void landed(std::uint64_t number, const Manner& manner, std::size_t endpoint) noexcept;
  static void land(Lane& lane, std::uint64_t epoch, bool moves_bytes) noexcept;

  const Manner& manner_;
  std::vector<std::unique_ptr<Landing>> landings_;
  std::vector<std::uint64_t> free_;  // indices, a heap; the lowest is taken first: low ones have room for more
};

}  // namespace sluice::backends::ofi
