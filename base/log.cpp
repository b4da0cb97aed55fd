// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <string>

namespace sluice::base {

namespace {

std::atomic<LogLevel> g_level{LogLevel::warn};

std::atomic<std::uint64_t> g_untold{0};

constexpr std::array<std::string_view, 4> kLevelNames = {"error", "warn", "info", "trace"};

}  // namespace

void set_level(LogLevel level) noexcept { g_level.store(level, std::memory_order_relaxed); }

bool enabled(LogLevel level) noexcept { return level <= g_level.load(std::memory_order_relaxed); }

void log(LogLevel level, std::string_view line) {
  if (!enabled(level)) return;
  std::string text = "sluice: ";
  text.append(kLevelNames.at(static_cast<std::size_t>(level))).append(": ").append(line);
  write_line(text);
}

void write_line(std::string_view line) {
  const std::string text = std::string(line) + '\n';
  // There is no place to report that stderr cannot be written.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

void report_untold(std::string_view line) {
  g_untold.fetch_add(1);
  write_line(std::string("sluice: ").append(line));
}

std::uint64_t untold_reported() noexcept { return g_untold.load(); }

}  // namespace sluice::base
