// SPDX-License-Identifier: Apache-2.0
// Settings from the environment: the class of provider to emulate, and how long writes are delayed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace chaos {

struct Settings {
  std::size_t data_bytes = 0;  // CHAOS_DATA
  bool ordered = false;        // CHAOS_ORDER
  bool counters = false;       // CHAOS_COUNTERS
  std::size_t inject = 0;      // CHAOS_INJECT
  std::size_t piece = 0;       // CHAOS_PIECE
  std::size_t tx_size = 0;     // CHAOS_TX_SIZE
  std::chrono::microseconds longest{};
  std::uint64_t seed = 0;  // CHAOS_SEED
};

/// Nothing, and a line on stderr, if a variable has a bad value.
std::optional<Settings> settings_from_environment();

}  // namespace chaos
