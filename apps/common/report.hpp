// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"
#include "apps/common/options.hpp"
#include "apps/common/phases.hpp"

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace apps {

/// The results of a run; times are those of the slowest rank. Infinities and NaN, which JSON does not have, are written
/// as "inf", "-inf" and "nan".
struct Result {
  std::string app;
  std::string comm;
  std::string backend;
  std::string stream;
  Index nx = 0;
  Index ny = 0;
  Index nz = 1;
  int ranks = 1;
  Index steps = 0;
  double create_s = 0;  ///< all before the first exchange: channels and memory, and the initial values
  double solve_s = 0;
  std::optional<PhaseSeconds> phases;
  std::string verification = "skipped";              ///< passed, failed or skipped
  std::optional<double> max_error;                   ///< largest difference from the serial run
  std::vector<std::pair<std::string, double>> more;  ///< results of this application alone

  double step_us() const { return steps > 0 ? 1e6 * solve_s / static_cast<double>(steps) : 0; }
};

/// One object, as text.
std::string to_json(const Result& result);
/// A header line and a line of values.
std::string to_csv(const Result& result);
/// Lines for people: the set-up, times of creation and solution, rate.
std::string to_text(const Result& result, double updates);

/// The reason why this run is not verified; empty if it is.
std::string why_not_verified(const CommonOptions& options, double updates);

/// True if `report` needs the whole field, to compare or to write it.
bool needs_field(const CommonOptions& options, double updates);

/// The reason why a file of that name cannot be written: "cannot write FILE: ..."; empty if it can. Opens and creates
/// nothing.
std::string why_not_writable(const std::string& file);
/// @throws UsageError if a file of that name cannot be written. Called before a run, which may take long.
void check_writable(const std::string& file);
/// Writes nothing if the name is empty. @throws std::runtime_error
void write_text(const std::string& file, const std::string& text);
/// Flushes standard output: only then a full device is noticed. @throws std::system_error, also for an earlier error of
/// `flush_lines`
void flush_output();
/// Flushes standard output, so that the lines of a job that is killed are in the file. An error is kept for
/// `flush_output`, and the job continues.
void flush_lines() noexcept;
/// Writes to standard output. An error is kept for `flush_output`.
void print_text(const std::string& text) noexcept;

/// Prints to standard output, and flushes it.
template <class... Values>
void print(fmt::format_string<Values...> format, Values&&... values) {
  fmt::print(format, std::forward<Values>(values)...);
  flush_lines();
}

/// Writes the files that the options name.
void write_results(const Result& result, const CommonOptions& options);

}  // namespace apps
