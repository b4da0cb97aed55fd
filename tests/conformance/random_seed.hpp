// SPDX-License-Identifier: Apache-2.0
// The seed of random tests: it is printed, and taken back. Ranks have that of their test.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <string_view>

namespace sluice::test {

/// SLUICE_USER_TEST_SEED; `new`: another one in each run. Call it before the ranks start.
inline std::uint64_t random_seed() {
  constexpr std::uint64_t kSeed = 20261128;
  constexpr const char* kVariable = "SLUICE_USER_TEST_SEED";
  const char* const given = std::getenv(kVariable);
  if (given != nullptr && given != std::string_view("new")) return std::strtoull(given, nullptr, 10);
  const std::uint64_t seed = given == nullptr ? kSeed : std::random_device()() >> 1;
  std::cout << kVariable << '=' << seed << '\n' << std::flush;
  ::setenv(kVariable, std::to_string(seed).c_str(), 1);
  return seed;
}

/// How many times longer random tests run: SLUICE_USER_TEST_ROUNDS.
inline std::uint64_t random_rounds() {
  const char* const given = std::getenv("SLUICE_USER_TEST_ROUNDS");
  return given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
}

}  // namespace sluice::test
