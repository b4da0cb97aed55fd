// SPDX-License-Identifier: Apache-2.0
#include "apps/faces/report.hpp"

#include "apps/common/image.hpp"
#include "apps/common/verify.hpp"
#include "apps/faces/reference.hpp"

#include <fmt/core.h>

#include <string>

namespace faces {
namespace {

void verify(const Options& options, const Problem& problem, Solution& solution) {
  apps::Result& result = solution.result;
  const std::string why_not = apps::why_not_verified(options.common, options.updates(result.ranks));
  if (!why_not.empty()) {
    fmt::print("VERIFICATION: skipped ({})\n", why_not);
    return;
  }
  const auto expected = solve_serially(problem, result.steps);
  const auto comparison = apps::compare<double>(solution.copies, expected);
  result.verification = comparison.passed() ? "passed" : "failed";
  result.max_error = comparison.max_error;
  fmt::print("{}\n", apps::verification_line(comparison, problem.mesh()));
}

}  // namespace

void print_header(const Options& options, const Problem& problem) {
  const Index n = options.nodes;
  fmt::print("Faces: {} steps, {} x {} x {} blocks of {}^3 nodes; {} bytes of a face, {} of an edge, {} of a corner\n",
             options.steps, problem.grid[2], problem.grid[1], problem.grid[0], n, 8 * n * n, 8 * n, 8);
}

bool reports_field(const Options& options, int ranks) {
  return apps::why_not_verified(options.common, options.updates(ranks)).empty() || !options.common.image.empty();
}

int report(const Options& options, const Problem& problem, Solution& solution) {
  apps::Result& result = solution.result;
  fmt::print("{} ranks, {} steps, comm {}, backend {}, stream {}\n{}", result.ranks, result.steps, result.comm,
             result.backend, result.stream, apps::to_text(result, options.updates(result.ranks)));
  verify(options, problem, solution);
  apps::write_results(result, options.common);
  const apps::Mesh mesh = problem.mesh();
  if (!options.common.image.empty())
    apps::write_png(options.common.image, apps::draw<double>(apps::middle_plane<double>(solution.copies, mesh), mesh.nx,
                                                             mesh.ny, -1, 1, apps::kDiverging));
  return result.verification == "failed" ? 1 : 0;
}

}  // namespace faces
