// SPDX-License-Identifier: Apache-2.0
#include "apps/faces/report.hpp"

#include "apps/common/field_file.hpp"
#include "apps/common/image.hpp"
#include "apps/common/verify.hpp"
#include "apps/faces/reference.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace faces {
namespace {

void write_picture(const std::string& file, std::span<const double> copies, const Problem& problem) {
  if (file.empty()) return;
  const auto [low, high] = picture_ends(copies, problem);
  apps::print("{}: blue is {:.6g}, red is {:.6g}\n", file, low, high);
  apps::write_picture<double>(file, copies, problem.mesh(), low, high, apps::kDiverging);
}

}  // namespace

std::pair<double, double> picture_ends(std::span<const double> copies, const Problem& problem) {
  const auto [low, high] = std::ranges::minmax(apps::drawn_plane(copies, problem.mesh()));
  return low < high ? std::pair(low, high) : std::pair(low - 1, low + 1);
}

void print_header(const Options& options, const Problem& problem) {
  const Index n = options.nodes;
  apps::print("Faces: {} steps, {} x {} x {} blocks of {}^3 nodes; {} bytes of a face, {} of an edge, {} of a corner\n",
              options.steps, problem.grid[2], problem.grid[1], problem.grid[0], n, 8 * n * n, 8 * n, 8);
}

bool reports_field(const Options& options, int ranks) {
  return apps::needs_field(options.common, options.updates(ranks));
}

int report(const Options& options, const Problem& problem, Solution& solution) {
  apps::Result& result = solution.result;
  const double updates = options.updates(result.ranks);
  apps::print("{}", apps::to_text(result, updates));
  apps::verify<double>(result, apps::why_not_verified(options.common, updates), solution.copies, problem.mesh(),
                       [&] { return solve_serially(problem, result.steps); });
  apps::write_results(result, options.common);
  write_picture(options.common.image, solution.copies, problem);
  apps::write_field<double>(options.common.field, solution.copies, {problem.mesh(), problem.grid});
  return result.verification == "failed" ? 1 : 0;
}

}  // namespace faces
