// SPDX-License-Identifier: Apache-2.0
#include "tests/emucxi/settings.hpp"

#include "tests/layer/environment.hpp"

namespace emucxi {
std::optional<Settings> settings_from_environment() {
  layer::Environment environment("emucxi");
  Settings settings;
  settings.trigger_entries = environment.number("EMUCXI_TLES", settings.trigger_entries, Settings::kReserved + 1);
  settings.refuse_beyond_entries = environment.is("EMUCXI_TLE_LIMIT", "enospc", "hang");
  settings.tx_size = environment.number("EMUCXI_TX_SIZE", settings.tx_size, 1);
  settings.flush = std::chrono::milliseconds(environment.number("EMUCXI_FLUSH_MS", 1000, 0));
  settings.message = environment.number("EMUCXI_MESSAGE", settings.message, 1);
  settings.fail_every = environment.number("EMUCXI_FAIL_EVERY", 0, 0);
  settings.overrun_at = environment.number("EMUCXI_OVERRUN_AT", 0, 0);
  if (!environment.good) return std::nullopt;
  return settings;
}

}  // namespace emucxi
