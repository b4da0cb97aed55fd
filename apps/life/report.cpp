// SPDX-License-Identifier: Apache-2.0
#include "apps/life/report.hpp"

#include "apps/common/image.hpp"
#include "apps/common/verify.hpp"
#include "apps/life/reference.hpp"

#include <fmt/core.h>

#include <string>

namespace life {
namespace {

void verify(const Options& options, const World& world, Solution& solution) {
  const std::string why_not = apps::why_not_verified(options.common, options.updates());
  if (!why_not.empty()) {
    fmt::print("VERIFICATION: skipped ({})\n", why_not);
    return;
  }
  const auto expected = live_serially(world, options.generations);
  const auto comparison = apps::compare<Cell>(solution.cells, expected);
  solution.result.verification = comparison.passed() ? "passed" : "failed";
  solution.result.max_error = comparison.max_error;
  fmt::print("{}\n", apps::verification_line(comparison, options.nx, expected.size()));
}

}  // namespace

bool reports_field(const Options& options) {
  return apps::why_not_verified(options.common, options.updates()).empty() || !options.common.image.empty() ||
         !options.rle.empty();
}

int report(const Options& options, const World& world, Solution& solution) {
  apps::Result& result = solution.result;
  fmt::print("{} ranks, {} steps, comm {}, backend {}, stream {}\n{}population: {}\n", result.ranks, result.steps,
             result.comm, result.backend, result.stream, apps::to_text(result, options.updates()), solution.population);
  verify(options, world, solution);
  apps::write_results(result, options.common);
  if (!options.common.image.empty())
    apps::write_png(options.common.image, apps::draw<Cell>(solution.cells, options.nx, options.ny, 0, 1, apps::kCells));
  if (!options.rle.empty()) apps::write_text(options.rle, to_rle(solution.cells, options.nx, options.ny, world.rule));
  return result.verification == "failed" ? 1 : 0;
}

}  // namespace life
