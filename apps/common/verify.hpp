// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"
#include "apps/common/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace apps {

/// Result of comparing a field with the expected one.
struct Comparison {
  Index differing = 0;   ///< cells with different bits; with a tolerance, cells outside it
  Index first = -1;      ///< the first of them
  double max_error = 0;  ///< of all cells; infinite if a difference is NaN

  bool passed() const { return differing == 0; }
};

/// Compares whole fields of the same size, bit by bit; with a tolerance, cells that are not equal may differ by that.
template <class T>
Comparison compare(std::span<const T> found, std::span<const T> expected, double tolerance = 0) {
  Comparison result;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bits are what is compared
    if (std::memcmp(&found[i], &expected[i], sizeof(T)) == 0) continue;
    const double error = std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
    if (tolerance == 0 || !(error <= tolerance)) {
      if (result.first < 0) result.first = static_cast<Index>(i);
      ++result.differing;
    }
    // A difference that is NaN must not look small.
    result.max_error = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(result.max_error, error);
  }
  return result;
}

/// The line that scripts look for: "VERIFICATION: PASSED" or "VERIFICATION: FAILED ...".
std::string verification_line(const Comparison& comparison, const Mesh& mesh);

/// Compares a whole field with the result of `solve_serially()`, unless there is a reason not to; writes a line to
/// `out`, and the outcome to `result`.
/// @returns the seconds that the serial run took; nothing if there was none
template <class T, class Solve>
std::optional<double> verify(Result& result, const std::string& why_not, std::span<const T> found, const Mesh& mesh,
                             const Solve& solve_serially, double tolerance = 0, std::FILE* out = stdout) {
  if (!why_not.empty()) {
    fmt::print(out, "VERIFICATION: skipped ({})\n", why_not);
    return std::nullopt;
  }
  const auto start = Clock::now();
  const std::vector<T> expected = solve_serially();
  const double serial_s = seconds_since(start);
  const Comparison comparison = compare<T>(found, expected, tolerance);
  result.verification = comparison.passed() ? "passed" : "failed";
  result.max_error = comparison.max_error;
  fmt::print(out, "{}\n", verification_line(comparison, mesh));
  flush_lines();
  return serial_s;
}

}  // namespace apps
