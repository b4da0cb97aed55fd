// SPDX-License-Identifier: Apache-2.0
// How a receiver learns that a put has landed: what a provider can do, cut to a support level (UNR's Table I: the bits
// that travel with a put).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/ofi/fabric.hpp"

namespace sluice::backends::ofi {

/// How the receiver learns that a put has landed, and why a signal is never seen before its data:
///
/// `number`  The put carries a number; the provider shows it to the receiver once all bytes are in place (fi_rma(3),
///           FI_REMOTE_CQ_DATA). The receiver raises the signal. Nothing need be ordered: the number names the epoch.
///           If it has no room for that (level 1), puts of a channel arrive in order, or go one at a time.
///           With write-after-write order the number of a large put is a write of its own, behind it.
///           File: by_number.cpp.
/// `word`    A second write raises the signal itself. With write-after-write order it follows the data at once;
///           without, once the data is known to be delivered (FI_DELIVERY_COMPLETE). File: by_word.cpp.
/// `counter` A counter bound to a slot of the receiver counts what has arrived there (FI_RMA_EVENT). Slots are used in
///           turn, so the counts name the epochs. Nothing need be ordered. Files: by_counter.cpp; rma.cpp
///           where the engine posts.
enum class Notice : std::uint8_t { number, word, counter };

struct Manner {
  Notice notice = Notice::word;
  int index_bits = 0;    ///< of the number: which landing
  int epoch_bits = 0;    ///< and which epoch of it; 0: the next
  bool ordered = false;  ///< writes to one peer arrive in the order in which they were posted

  /// The number that goes with an epoch.
  std::uint64_t number(std::uint64_t index, std::uint64_t epoch) const noexcept {
    return index | (epoch_bits == 0 ? 0 : (epoch & ((std::uint64_t{1} << epoch_bits) - 1)) << index_bits);
  }
  /// True if the number has enough bits for a landing of this index and depth.
  bool has_room(std::uint64_t index, int depth) const noexcept;
  /// True if the number has enough bits to name one of `counters` counters of the offer with this index, in place of an
  /// epoch.
  bool names_counters(std::uint64_t index, std::size_t counters) const noexcept;
  /// A number has room for two of `kHalf`: for a credit that goes with a put.
  bool takes_two() const noexcept { return index_bits + epoch_bits == 63; }
};

/// The layout of each of two numbers in one.
inline constexpr int kHalfBits = 31;
inline constexpr Manner kHalf{Notice::number, 20, kHalfBits - 20};
inline constexpr std::uint64_t kTwo = std::uint64_t{1} << 63;  ///< the bit that marks such a number
inline std::uint64_t two_in_one(std::uint64_t first, std::uint64_t second) noexcept {
  return kTwo | second << kHalfBits | first;
}

/// How many bytes may travel with a write.
std::size_t data_bytes(const fi_info& info) noexcept;

/// Capabilities for deferred work and counted memory.
inline constexpr std::uint64_t kTriggerCaps = FI_TRIGGER | FI_RMA_EVENT;

/// The support level of a provider: 4: work is fired and counted without a thread of ours, 3: 64 bits travel with a
/// put, 2: 32, 1: 8 or 16, 0: none.
int level_of(const fi_info& info) noexcept;

/// The best manner of the provider that needs no more than `level`.
Manner choose_manner(const fi_info& info, int level) noexcept;

}  // namespace sluice::backends::ofi
