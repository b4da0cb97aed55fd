// SPDX-License-Identifier: Apache-2.0
#include "apps/heat/options.hpp"

#include <CLI/CLI.hpp>

#include <map>
#include <optional>
#include <string>

namespace heat {
namespace {

// The options for the sides of the mesh.
struct Sides {
  int dims = 2;
  std::optional<Index> nx, ny, nz, all;
  std::optional<double> fourier;

  void fill(Options& options) const {
    if (dims == 2 && nz) throw CLI::ValidationError("--nz", "two dimensions have no z (--dims 3)");
    const Index side = all.value_or(dims == 2 ? 512 : 64);
    options.nx = nx.value_or(side);
    options.ny = ny.value_or(side);
    options.nz = dims == 2 ? 1 : nz.value_or(side);
    const double most = 1.0 / (2 * dims);
    options.fourier = fourier.value_or(dims == 2 ? 0.2 : 0.125);
    const bool stable = options.fourier > 0 && options.fourier <= most;
    if (!stable)
      throw CLI::ValidationError("--fourier", "stable steps are above 0 and at most 1/" + std::to_string(2 * dims));
  }
};

void add_mesh_options(CLI::App& app, Sides& sides) {
  const CLI::Validator cells = apps::whole_number(3, 1 << 24);
  app.add_option("--dims", sides.dims, "dimensions: 2 (default) or 3")
      ->check(CLI::IsMember({2, 3}))
      ->option_text("2|3");
  app.add_option("--nx", sides.nx, "cells along x; default: 512, or 64 with --dims 3")->transform(cells);
  app.add_option("--ny", sides.ny, "cells along y")->transform(cells);
  app.add_option("--nz", sides.nz, "cells along z")->transform(cells);
  app.add_option("-n,--ncells", sides.all, "cells along each axis")->transform(cells);
  app.add_option("--fourier", sides.fourier,
                 "a step in time: diffusivity x time / square of a cell's side; default: 0.2, or 0.125 with --dims 3");
}

}  // namespace

apps::Parsed parse(int argc, const char* const* argv, Options& options) {
  CLI::App app("Spreads heat in a box that wraps around, by explicit steps.", "heat");
  Sides sides;
  add_mesh_options(app, sides);
  app.add_option("-t,--timesteps", options.steps, "steps")->transform(apps::whole_number())->capture_default_str();
  static const std::map<std::string, Start> starts = {{"sine", Start::sine}, {"spots", Start::spots}};
  app.add_option_function<std::string>(
         "--start", [&options](const std::string& name) { options.start = starts.at(name); },
         "sine (default; its exact solution is known) or spots")
      ->check(CLI::IsMember({"sine", "spots"}))
      ->option_text("sine|spots");
  apps::add_frame_options(app, options.frames, "--image and --field");
  apps::add_common_options(app, options.common, "-c,--comm,--comm-space");
  app.footer("Long options may have one dash, as in -nx 256.");
  app.callback([&] {
    sides.fill(options);
    apps::check(options.frames, !options.common.image.empty() || !options.common.field.empty());
  });
  return apps::parse(app, argc, argv);
}

}  // namespace heat
