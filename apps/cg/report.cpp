// SPDX-License-Identifier: Apache-2.0
#include "apps/cg/report.hpp"

#include "apps/cg/reference.hpp"
#include "apps/common/field_file.hpp"
#include "apps/common/image.hpp"
#include "apps/common/progress.hpp"
#include "apps/common/verify.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace cg {
namespace {

double largest(std::span<const double> cells) {
  double most = 0;
  for (const double cell : cells) most = std::max(most, std::abs(cell));
  return most;
}

// The method's own residual drifts away from the true one by rounding, least when it is large.
bool residual_is_true(Solution& solution) {
  apps::print("residual: {:.4g}", solution.residual);
  solution.result.more.emplace_back("residual", solution.residual);
  if (!solution.true_residual) {
    apps::print("\n");
    return true;
  }
  const double found = *solution.true_residual;
  apps::print(", {:.4g} of the result itself\n", found);
  solution.result.more.emplace_back("true_residual", found);
  return found <= 2 * solution.residual + 1e-6;
}

void print_times(const apps::Result& result) {
  if (!result.phases) return;
  for (const auto& [name, seconds] : result.more)
    if (name.ends_with("_s")) apps::print("  {:9} {:.6f} s\n", name.substr(0, name.size() - 2), seconds);
}

}  // namespace

void print_header(const Options& options) {
  const std::string planes = options.problem().has_planes() ? fmt::format(" x {}", options.nz) : "";
  apps::print("Conjugate gradients: at most {} iterations in a box of {} x {}{} cells\n", options.iterations,
              options.nx, options.ny, planes);
}

void print_residual(const Options& options, Index iteration, double residual) {
  if (iteration % 100 < options.check_every) apps::print("{:5d}, {:.6e}{}", iteration, residual, apps::line_end());
}

bool reports_field(const Options& options) {
  return apps::needs_field(options.common, options.updates(options.iterations));
}

int report(const Options& options, Solution& solution) {
  apps::Result& result = solution.result;
  apps::print("{}", apps::to_text(result, options.updates(result.steps)));
  print_times(result);
  const bool is_true = residual_is_true(solution);
  const apps::Mesh mesh = options.problem().mesh();
  const double most = largest(solution.cells);
  constexpr double kTolerance = 1e-7;  // of the largest value: sums of other orders are rounded otherwise
  apps::verify<double>(
      result, apps::why_not_verified(options.common, options.updates(options.iterations)), solution.cells, mesh,
      [&] { return solve_serially(options.problem(), result.steps); }, kTolerance * most);
  if (!is_true) {
    apps::print("VERIFICATION: FAILED the residual of the result is not what the method says\n");
    result.verification = "failed";
  }
  apps::write_results(result, options.common);
  apps::write_picture<double>(options.common.image, solution.cells, mesh, -most, most, apps::kDiverging);
  apps::write_field<double>(options.common.field, solution.cells, {mesh, result.ranks});
  return result.verification == "failed" ? 1 : 0;
}

}  // namespace cg
