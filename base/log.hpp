// SPDX-License-Identifier: Apache-2.0
// Lines on stderr.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::base {

enum class LogLevel { error, warn, info, trace };

/// Makes `log` write lines up to this level. A process starts with `warn`.
void set_level(LogLevel level) noexcept;

/// True if `log` writes lines of this level; to be called before composing one.
bool enabled(LogLevel level) noexcept;

/// Writes "sluice: warn: LINE" to stderr, in one write, so that the lines of several ranks never mix. Any thread.
void log(LogLevel level, std::string_view line);

/// Writes "LINE" to stderr, in one write, whatever the level.
void write_line(std::string_view line);

/// Writes "sluice: LINE": a failure that no call has thrown. `run` and `run_threads` then return 1. Any thread.
void report_untold(std::string_view line);
/// How many this process has reported.
std::uint64_t untold_reported() noexcept;

}  // namespace sluice::base
