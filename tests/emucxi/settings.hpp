// SPDX-License-Identifier: Apache-2.0
// Settings from the environment, read whenever a domain is opened.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace emucxi {

struct Settings {
  /// Most bytes of a message on cxi.
  static constexpr std::size_t kLongest = (std::uint64_t{1} << 32) - 1;

  std::size_t trigger_entries = 512;      // EMUCXI_TLES, of which some are reserved
  bool refuse_beyond_entries = false;     // EMUCXI_TLE_LIMIT: enospc, or hang
  std::size_t tx_size = 1024;             // EMUCXI_TX_SIZE
  std::chrono::milliseconds flush{1000};  // EMUCXI_FLUSH_MS
  std::size_t message = kLongest;         // EMUCXI_MESSAGE
  std::uint64_t fail_every = 0;           // EMUCXI_FAIL_EVERY, 0: never
  std::uint64_t overrun_at = 0;           // EMUCXI_OVERRUN_AT, 0: never

  /// Entries that cxi keeps for itself.
  static constexpr std::size_t kReserved = 8;
  std::size_t usable_entries() const { return trigger_entries - kReserved; }
};

/// Nothing, and a line on stderr, if a variable has a bad value.
std::optional<Settings> settings_from_environment();

}  // namespace emucxi
