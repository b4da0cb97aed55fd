// SPDX-License-Identifier: Apache-2.0
#include "apps/jacobi/report.hpp"

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

std::string why_not_verified(const Options& options) {
  return apps::why_not_verified(options.common, options.updates(options.iterations));
}

// Compares with the serial run; returns that run's time, if there was one.
std::optional<double> verify(const Options& options, Solution& solution) {
  std::FILE* const out = options.csv_line ? stderr : stdout;
  const std::string why_not = why_not_verified(options);
  if (!why_not.empty()) {
    fmt::print(out, "VERIFICATION: skipped ({})\n", why_not);
    return {};
  }
  const auto start = apps::Clock::now();
  const auto expected = solve_serially(options.problem(), solution.result.steps);
  const double serial_s = apps::seconds_since(start);
  const auto comparison = apps::compare<double>(solution.unknowns, expected);
  solution.result.verification = comparison.passed() ? "passed" : "failed";
  solution.result.max_error = comparison.max_error;
  fmt::print(out, "{}\n", apps::verification_line(comparison, options.problem().mesh()));
  return serial_s;
}

void print_csv_line(const Options& options, const apps::Result& result, std::optional<double> serial_s) {
  fmt::print("{}, {}, {}, {}, {}, {}, 1, {:f}, {}\n", result.comm, result.nx, result.ny, options.iterations,
             options.norm_every, result.ranks, result.solve_s, serial_s ? fmt::format("{:f}", *serial_s) : "");
}

}  // namespace

void print_norm(const Options& options, apps::Index iteration, double norm) {
  if (!options.csv_line && iteration % 100 < options.norm_every)
    fmt::print("{:5d}, {:.6f}{}", iteration, norm, apps::line_end());
}

void print_header(const Options& options) {
  if (options.csv_line) return;
  const std::string planes = options.problem().has_planes() ? fmt::format("{} x ", options.nz) : "";
  fmt::print("Jacobi relaxation: {} iterations on {}{} x {} mesh", options.iterations, planes, options.ny, options.nx);
  if (options.norm_every > 0) fmt::print(" with norm check every {} iterations", options.norm_every);
  fmt::print("\n");
}

bool reports_field(const Options& options) {
  return why_not_verified(options).empty() || !options.common.image.empty();
}

int report(const Options& options, Solution& solution) {
  apps::Result& result = solution.result;
  if (!options.csv_line)
    fmt::print("{} ranks, {} steps, comm {}, backend {}, stream {}\n{}", result.ranks, result.steps, result.comm,
               result.backend, result.stream, apps::to_text(result, options.updates(result.steps)));
  const auto serial_s = verify(options, solution);
  if (options.csv_line) print_csv_line(options, result, serial_s);
  apps::write_results(result, options.common);
  const apps::Mesh mesh = options.problem().mesh();
  if (!options.common.image.empty())
    apps::write_png(options.common.image, apps::draw<double>(apps::middle_plane<double>(solution.unknowns, mesh),
                                                             mesh.nx, mesh.ny, -1, 1, apps::kDiverging));
  return result.verification == "failed" ? 1 : 0;
}

}  // namespace jacobi
