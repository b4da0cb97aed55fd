// SPDX-License-Identifier: Apache-2.0
#include "apps/common/verify.hpp"

#include <fmt/core.h>

namespace apps {

std::string verification_line(const Comparison& comparison, const Mesh& mesh) {
  if (comparison.passed()) return "VERIFICATION: PASSED";
  const Index row = comparison.first / mesh.nx;
  std::string at = fmt::format("x={} y={}", comparison.first % mesh.nx, row % mesh.ny);
  if (mesh.nz > 1) at += fmt::format(" z={}", row / mesh.ny);
  return fmt::format("VERIFICATION: FAILED {} of {} cells differ, the first at {}, max_abs_err={}",
                     comparison.differing, mesh.cells(), at, comparison.max_error);
}

}  // namespace apps
