// SPDX-License-Identifier: Apache-2.0
// The contents of this backend's keys, and the peer's segments mapped here.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "backends/put.hpp"

namespace sluice::backends::shm {

/// How a landing says so.
constexpr const char* kLandsInTarget = "shm: lands in the target itself, which the peer maps";

/// A place in one of the owner's segments. Segment 0: nowhere.
struct Where {
  std::uint64_t segment = 0;
  std::uint64_t segment_bytes = 0;
  std::uint64_t offset = 0;
};

/// A landing as the peer gets to know it; or an offer, which is one slot, and at `word` counters.
struct Target {
  Where slots;  ///< of the target itself, or of the bounce slots
  std::uint64_t slot_bytes = 0;
  std::uint64_t stride = 0;
  std::int32_t depth = 1;
  bool bounced = false;       ///< of an offer: cannot be mapped
  std::uint64_t address = 0;  ///< bounced: of the target in its owner's address space; 0: of a GPU
  Where detour;               ///< bounce slots, for a peer that cannot map `slots`; nowhere: there are none
  std::uint64_t detour_stride = 0;
  Where word;
  std::uint64_t counters_bytes = 0;
  Where parking;
};

/// The shared segments whose descriptors the peer was sent. They live as long as their process, so once is enough; a
/// process may have only so many descriptors under way.
using Sent = std::set<std::uint64_t>;

Where where(const device::Extent& memory, const void* at);
/// A landing in the target itself.
Target direct_target(const Slots& slots, const Signal& signal);
Key pack(const Target& target, std::initializer_list<const device::Segment*> segments, Sent& sent);

/// The segments of one peer that are mapped here. A segment is mapped once, however many channels use it.
class Mappings {
 public:
  /// `own`: the peer is in this process, where GPUs' memory is at the same address.
  explicit Mappings(bool own) : own_(own) {}
  /// Maps the shared segments that came with the key: later keys do not bring them again.
  void keep(Key& key);
  /// Takes the descriptors that came with `key`. `driver`: set to that of the GPU whose memory it is.
  std::byte* find(const Where& where, Key& key, Mapped& in_use, device::Driver** driver = nullptr);

 private:
  std::shared_ptr<device::Mapping> take(std::uint64_t segment, Key& key);

  bool own_;
  std::map<std::uint64_t, std::weak_ptr<device::Mapping>> mapped_;
  std::vector<std::shared_ptr<device::Mapping>> kept_;
  std::map<std::uint64_t, std::string> not_mapped_;  // segments that came once, and why they cannot be mapped
};

}  // namespace sluice::backends::shm
