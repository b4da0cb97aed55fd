// SPDX-License-Identifier: Apache-2.0
#include "apps/common/verify.hpp"

#include <fmt/core.h>

namespace apps {

std::string verification_line(const Comparison& comparison, Index nx, std::size_t cells) {
  if (comparison.passed()) return "VERIFICATION: PASSED";
  return fmt::format("VERIFICATION: FAILED {} of {} cells differ, the first at x={} y={}, max_abs_err={}",
                     comparison.differing, cells, comparison.first % nx, comparison.first / nx, comparison.max_error);
}

}  // namespace apps
