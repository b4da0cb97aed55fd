// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/halo.hpp"

#include <sluice/sluice.hpp>

#include <cstddef>
#include <vector>

namespace apps {

/// How many messages of a pair may be under way: epoch k uses slot k mod kSlots, so a step need not wait for the last
/// one's.
inline constexpr int kSlots = 2;

/// Where the messages of a halo are packed and where they land: kSlots slots in each direction.
///
/// Apart from the channels that move them, because work on a stream may use the slots until the stream has ended.
class HaloBuffers {
 public:
  HaloBuffers(sluice::Context& context, const Halo& halo, std::size_t cell_bytes, sluice::Space space);

  /// The slots of a message, one behind the other.
  sluice::Slice out_slots(std::size_t message) const { return slots(places_[message].out, places_[message].out_bytes); }
  sluice::Slice in_slots(std::size_t message) const { return slots(places_[message].in, places_[message].in_bytes); }

  std::byte* out(std::size_t message, int slot) const {
    return base_ + places_[message].out + static_cast<std::size_t>(slot) * places_[message].out_bytes;
  }
  std::byte* in(std::size_t message, int slot) const {
    return base_ + places_[message].in + static_cast<std::size_t>(slot) * places_[message].in_bytes;
  }

 private:
  struct Place {
    std::size_t out;  // of the first slot
    std::size_t out_bytes;
    std::size_t in;
    std::size_t in_bytes;
  };

  sluice::Slice slots(std::size_t at, std::size_t bytes) const { return memory_.slice(at, kSlots * bytes); }

  std::vector<Place> places_;
  sluice::Memory memory_;
  std::byte* base_ = nullptr;
};

}  // namespace apps
