// SPDX-License-Identifier: Apache-2.0
#include "apps/channel_flow/report.hpp"

#include "apps/channel_flow/reference.hpp"
#include "apps/common/verify.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>

namespace channel_flow {
namespace {

constexpr double kTolerance = 1e-10;  // of velocities of about 1

std::string why_not_compared(const Options& options) {
  return apps::why_not_verified(options.common, products(options.mesh(), options.steps));
}

bool has_no_divergence(Solution& solution, Index steps) {
  if (!solution.divergence || steps == 0) return true;
  solution.result.more.emplace_back("divergence", *solution.divergence);
  const bool none = *solution.divergence <= kTolerance;
  apps::print("CONSERVATION: {} the largest divergence of a cell is {:.3g}\n", none ? "PASSED" : "FAILED",
              *solution.divergence);
  return none;
}

void compare(const Options& options, Solution& solution) {
  apps::Result& result = solution.result;
  if (const std::string why_not = why_not_compared(options); !why_not.empty()) {
    apps::print("VERIFICATION: skipped ({})\n", why_not);
    return;
  }
  const auto expected = solve_serially(options.mesh(), options.steps);
  apps::Comparison worst;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto here = apps::compare<double>(solution.velocity[i], expected[i], kTolerance);
    const double most = std::max(worst.max_error, here.max_error);
    if (worst.passed()) worst = here;
    worst.max_error = most;
  }
  result.verification = worst.passed() ? "passed" : "failed";
  result.max_error = worst.max_error;
  apps::print("{}\n", apps::verification_line(worst, options.mesh()));
}

}  // namespace

void print_header(const Options& options, const apps::Pencils& pencils) {
  apps::print("Channel flow: {} steps, {} x {} x {} cells in {} x {} pencils\n", options.steps, options.nx, options.ny,
              options.nz, pencils.columns(), pencils.rows());
}

bool reports_velocity(const Options& options) { return why_not_compared(options).empty(); }

int report(const Options& options, Solution& solution) {
  apps::print("{}", apps::to_text(solution.result, options.updates()));
  const bool none = has_no_divergence(solution, options.steps);
  compare(options, solution);
  if (!none) solution.result.verification = "failed";
  apps::write_results(solution.result, options.common);
  return solution.result.verification == "failed" ? 1 : 0;
}

}  // namespace channel_flow
