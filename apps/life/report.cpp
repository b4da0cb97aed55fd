// SPDX-License-Identifier: Apache-2.0
#include "apps/life/report.hpp"

#include "apps/common/field_file.hpp"
#include "apps/common/image.hpp"
#include "apps/common/verify.hpp"
#include "apps/life/reference.hpp"

#include <fmt/core.h>

#include <span>
#include <string>

namespace life {
namespace {

struct Files {
  std::string image, field, rle;  // empty: not written

  void write(const World& world, int ranks, std::span<const Cell> cells) const {
    apps::write_picture(image, cells, world.mesh(), 0, 1, apps::kCells);
    apps::write_field(field, cells, {world.mesh(), ranks});
    if (!rle.empty()) apps::write_text(rle, to_rle(cells, world.nx, world.ny, world.rule));
  }
};

}  // namespace

void print_header(const Options& options, const World& world) {
  apps::print("Life ({}): {} generations on a torus of {} x {} cells\n", rule_text(world.rule), options.generations,
              world.nx, world.ny);
}

bool reports_field(const Options& options, const World& world) {
  return apps::needs_field(options.common, world.updates(options.generations)) || !options.rle.empty();
}

apps::StepFiles<Cell> step_files(const Options& options, const World& world, int ranks) {
  const auto write = [&options, &world, ranks](Index generation, std::span<const Cell> cells) {
    Files{apps::numbered(options.common.image, generation), apps::numbered(options.common.field, generation),
          apps::numbered(options.rle, generation)}
        .write(world, ranks, cells);
  };
  return {options.frames, options.generations, world.mesh(), 0, 1, apps::kCells, write};
}

int report(const Options& options, const World& world, Solution& solution) {
  apps::Result& result = solution.result;
  const double updates = world.updates(options.generations);
  apps::print("{}population: {}\n", apps::to_text(result, updates), solution.population);
  apps::verify<Cell>(result, apps::why_not_verified(options.common, updates), solution.cells, world.mesh(),
                     [&] { return live_serially(world, options.generations); });
  apps::write_results(result, options.common);
  Files{options.common.image, options.common.field, options.rle}.write(world, result.ranks, solution.cells);
  return result.verification == "failed" ? 1 : 0;
}

}  // namespace life
