// SPDX-License-Identifier: Apache-2.0
#include "tests/emucxi/settings.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>

namespace emucxi {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();

class Environment {
 public:
  std::uint64_t number(const char* name, std::uint64_t otherwise, std::uint64_t least) {
    const char* const text = std::getenv(name);
    if (!text) return otherwise;
    const std::string_view whole = text;
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(whole.begin(), whole.end(), value);
    if (error != std::errc() || end != whole.end() || value < least || value > kMost) return bad(name, text);
    return value;
  }

  bool refuses(const char* name) {
    const char* const text = std::getenv(name);
    const std::string_view mode = text ? text : "hang";
    if (mode != "hang" && mode != "enospc") bad(name, text);
    return mode == "enospc";
  }

  bool good = true;

 private:
  std::uint64_t bad(const char* name, const char* text) {
    std::fprintf(stderr, "emucxi: bad value of %s: '%s'\n", name, text);
    good = false;
    return 0;
  }
};

}  // namespace

std::optional<Settings> settings_from_environment() {
  Environment environment;
  Settings settings;
  settings.trigger_entries = environment.number("EMUCXI_TLES", settings.trigger_entries, Settings::kReserved + 1);
  settings.refuse_beyond_entries = environment.refuses("EMUCXI_TLE_LIMIT");
  settings.tx_size = environment.number("EMUCXI_TX_SIZE", settings.tx_size, 1);
  settings.flush = std::chrono::milliseconds(environment.number("EMUCXI_FLUSH_MS", 1000, 0));
  settings.fail_every = environment.number("EMUCXI_FAIL_EVERY", 0, 0);
  if (!environment.good) return std::nullopt;
  return settings;
}

}  // namespace emucxi
