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
  fmt::print("{}\n", apps::verification_line(comparison, world.mesh()));
}

// Files without a name are not written.
void write_field(const std::string& image, const std::string& rle, const World& world, std::span<const Cell> cells) {
  if (!image.empty()) apps::write_png(image, apps::draw<Cell>(cells, world.nx, world.ny, 0, 1, apps::kCells));
  if (!rle.empty()) apps::write_text(rle, to_rle(cells, world.nx, world.ny, world.rule));
}

}  // namespace

void print_header(const Options& options, const World& world) {
  fmt::print("Life ({}): {} generations on a torus of {} x {} cells\n", rule_text(world.rule), options.generations,
             options.nx, options.ny);
}

bool reports_field(const Options& options) {
  return apps::why_not_verified(options.common, options.updates()).empty() || !options.common.image.empty() ||
         !options.rle.empty();
}

void Chronicle::write(Index generation, std::span<const Cell> cells) {
  if (options_.frames.writes(generation))
    write_field(apps::numbered(options_.common.image, generation), apps::numbered(options_.rle, generation), world_,
                cells);
  if (!options_.frames.shows(generation, options_.generations)) return;
  if (!movie_) movie_.emplace(options_.frames.movie, world_.nx, world_.ny, 0, 1, apps::kCells);
  movie_->add(cells);
}

void Chronicle::close() {
  if (movie_) movie_->close();
}

int report(const Options& options, const World& world, Solution& solution) {
  apps::Result& result = solution.result;
  fmt::print("{} ranks, {} steps, comm {}, backend {}, stream {}\n{}population: {}\n", result.ranks, result.steps,
             result.comm, result.backend, result.stream, apps::to_text(result, options.updates()), solution.population);
  verify(options, world, solution);
  apps::write_results(result, options.common);
  write_field(options.common.image, options.rle, world, solution.cells);
  return result.verification == "failed" ? 1 : 0;
}

}  // namespace life
