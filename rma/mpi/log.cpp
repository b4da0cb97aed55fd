// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

namespace sluice::mpi_rma {
namespace {

constexpr std::array<std::string_view, 4> kNames{"error", "warn", "info", "trace"};

Level level_of_environment() {
  const char* const set = std::getenv("SLUICE_LOG");
  const auto* const found = std::ranges::find(kNames, std::string_view(set == nullptr ? "warn" : set));
  return found == kNames.end() ? Level::warn : static_cast<Level>(found - kNames.begin());
}

bool is_zero(const char* variable) {
  const char* const set = std::getenv(variable);
  return set != nullptr && std::string_view(set) == "0";
}

}  // namespace

bool enabled(Level level) {
  static const Level most = level_of_environment();
  return level <= most;
}

void log(Level level, std::string_view line) {
  if (!enabled(level)) return;
  std::string text = "sluice: ";
  text.append(kNames.at(static_cast<std::size_t>(level))).append(": ").append(line).append("\n");
  // There is no place to report that stderr cannot be written.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

bool switched_on() {
  static const bool on = !is_zero("SLUICE_MPI_RMA");
  return on;
}

bool mpi_yields() {
  static const bool on = !is_zero("SLUICE_MPI_YIELD");
  return on;
}

}  // namespace sluice::mpi_rma
