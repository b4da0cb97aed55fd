// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>

namespace apps {

/// How a field compares with the one that it should be.
struct Comparison {
  Index differing = 0;  ///< cells whose bits are not the same
  Index first = -1;     ///< the first of them
  double max_error = 0;

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
    // A difference that is no number must not look small.
    result.max_error = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(result.max_error, error);
  }
  return result;
}

/// The line that scripts look for: "VERIFICATION: PASSED" or "VERIFICATION: FAILED ...".
std::string verification_line(const Comparison& comparison, const Mesh& mesh);

}  // namespace apps
