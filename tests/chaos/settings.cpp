// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/settings.hpp"

#include <bit>

#include "tests/layer/environment.hpp"

namespace chaos {
std::optional<Settings> settings_from_environment() {
  layer::Environment environment("chaos");
  Settings settings;
  settings.ordered = environment.is("CHAOS_ORDER", "granted", "refused");
  settings.counters = environment.is("CHAOS_COUNTERS", "yes", "no");
  settings.data_bytes = environment.number("CHAOS_DATA", settings.counters ? 0 : 8);
  const std::size_t most = settings.counters ? 0 : 8;  // the network below carries either
  if (settings.data_bytes > most || std::popcount(settings.data_bytes) > 1) environment.refuse("CHAOS_DATA");
  settings.inject = environment.number("CHAOS_INJECT", 64);
  settings.piece = environment.number("CHAOS_PIECE", 1024, 8);
  settings.tx_size = environment.number("CHAOS_TX_SIZE", 16, 1);
  settings.longest = std::chrono::microseconds(environment.number("CHAOS_LONGEST_US", 400));
  settings.seed = environment.number("CHAOS_SEED", 1);
  if (!environment.good) return std::nullopt;
  return settings;
}

}  // namespace chaos
