// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/settings.hpp"

#include <bit>
#include <cstdio>
#include <random>

#include "tests/layer/environment.hpp"

namespace chaos {
namespace {

/// One for the process, told when it is chosen.
std::uint64_t chosen_seed() {
  static const std::uint64_t seed = [] {
    const std::uint64_t chosen = std::random_device()() >> 1;
    std::fprintf(stderr, "chaos: CHAOS_SEED=%llu\n", static_cast<unsigned long long>(chosen));
    return chosen;
  }();
  return seed;
}

}  // namespace

std::optional<Settings> settings_from_environment() {
  layer::Environment environment("chaos");
  Settings settings;
  settings.data_bytes = environment.number("CHAOS_DATA", 8);
  if (settings.data_bytes > 8 || std::popcount(settings.data_bytes) > 1) environment.refuse("CHAOS_DATA");
  settings.ordered = environment.is("CHAOS_ORDER", "granted", "refused");
  settings.counters = environment.is("CHAOS_COUNTERS", "yes", "no");
  settings.inject = environment.number("CHAOS_INJECT", 64);
  settings.piece = environment.number("CHAOS_PIECE", 1024, 8);
  settings.tx_size = environment.number("CHAOS_TX_SIZE", 16, 1);
  settings.longest = std::chrono::microseconds(environment.number("CHAOS_LONGEST_US", 400));
  settings.seed = environment.number("CHAOS_SEED", 0);
  if (settings.seed == 0) settings.seed = chosen_seed();
  if (!environment.good) return std::nullopt;
  return settings;
}

}  // namespace chaos
