// SPDX-License-Identifier: Apache-2.0
#include "apps/life/report.hpp"

#include "apps/common/image.hpp"
#include "apps/common/verify.hpp"
#include "apps/life/reference.hpp"

#include <fmt/core.h>

#include <string>

namespace life {
namespace {

// Files without a name are not written.
void write_field(const std::string& image, const std::string& rle, const World& world, std::span<const Cell> cells) {
  apps::write_picture(image, cells, world.mesh(), 0, 1, apps::kCells);
  if (!rle.empty()) apps::write_text(rle, to_rle(cells, world.nx, world.ny, world.rule));
}

}  // namespace

void print_header(const Options& options, const World& world) {
  fmt::print("Life ({}): {} generations on a torus of {} x {} cells\n", rule_text(world.rule), options.generations,
             options.nx, options.ny);
}

bool reports_field(const Options& options) {
  return apps::needs_field(options.common, options.updates()) || !options.rle.empty();
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
  fmt::print("{}population: {}\n", apps::to_text(result, options.updates()), solution.population);
  apps::verify<Cell>(result, apps::why_not_verified(options.common, options.updates()), solution.cells, world.mesh(),
                     [&] { return live_serially(world, options.generations); });
  apps::write_results(result, options.common);
  write_field(options.common.image, options.rle, world, solution.cells);
  return result.verification == "failed" ? 1 : 0;
}

}  // namespace life
