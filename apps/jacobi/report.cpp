// SPDX-License-Identifier: Apache-2.0
#include "apps/jacobi/report.hpp"

#include "apps/common/field_file.hpp"
#include "apps/common/image.hpp"
#include "apps/common/progress.hpp"
#include "apps/common/verify.hpp"
#include "apps/jacobi/reference.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <optional>
#include <string>

namespace jacobi {
namespace {

void print_csv_line(const Options& options, const apps::Result& result, std::optional<double> serial_s) {
  apps::print("{}, {}, {}, {}, {}, {}, 1, {:f}, {}\n", result.comm, result.nx, result.ny, options.iterations,
              options.norm_every, result.ranks, result.solve_s, serial_s ? fmt::format("{:f}", *serial_s) : "");
}

}  // namespace

void print_norm(const Options& options, apps::Index iteration, double norm) {
  if (!options.csv_line && iteration % 100 < options.norm_every)
    apps::print("{:5d}, {:.6f}{}", iteration, norm, apps::line_end());
}

void print_header(const Options& options) {
  if (options.csv_line) return;
  const std::string planes = options.problem().has_planes() ? fmt::format("{} x ", options.nz) : "";
  apps::print("Jacobi relaxation: {} iterations on {}{} x {} mesh", options.iterations, planes, options.ny, options.nx);
  if (options.norm_every > 0) apps::print(" with norm check every {} iterations", options.norm_every);
  apps::print("\n");
}

bool reports_field(const Options& options) {
  return apps::needs_field(options.common, options.updates(options.iterations));
}

int report(const Options& options, Solution& solution) {
  apps::Result& result = solution.result;
  if (!options.csv_line) apps::print("{}", apps::to_text(result, options.updates(result.steps)));
  const std::string why_not = apps::why_not_verified(options.common, options.updates(options.iterations));
  const apps::Mesh mesh = options.problem().mesh();
  const auto serial_s = apps::verify<double>(
      result, why_not, solution.unknowns, mesh, [&] { return solve_serially(options.problem(), result.steps); }, 0,
      options.csv_line ? stderr : stdout);
  if (options.csv_line) print_csv_line(options, result, serial_s);
  apps::write_results(result, options.common);
  apps::write_picture<double>(options.common.image, solution.unknowns, mesh, -1, 1, apps::kDiverging);
  apps::write_field<double>(options.common.field, solution.unknowns, {mesh, result.ranks});
  return result.verification == "failed" ? 1 : 0;
}

}  // namespace jacobi
