// SPDX-License-Identifier: Apache-2.0
#include "apps/heat/options.hpp"

#include "apps/common/choice.hpp"

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

namespace heat {
namespace {

const apps::Choices<Start> kStarts = {{"sine", Start::sine}, {"spots", Start::spots}};

// The options for the mesh.
struct MeshOptions {
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

void add_mesh_options(CLI::App& app, MeshOptions& mesh) {
  const CLI::Validator cells = apps::whole_number(3, 1 << 24);
  app.add_option("--dims", mesh.dims, "dimensions: 2 (default) or 3")->check(CLI::IsMember({2, 3}))->option_text("2|3");
  app.add_option("--nx", mesh.nx, "cells along x; default: 512, or 64 with --dims 3")->transform(cells);
  app.add_option("--ny", mesh.ny, "cells along y")->transform(cells);
  app.add_option("--nz", mesh.nz, "cells along z")->transform(cells);
  app.add_option("-n,--ncells", mesh.all, "cells along each axis")->transform(cells);
  app.add_option("--fourier", mesh.fourier,
                 "a step in time: diffusivity x time / square of a cell's side; default: 0.2, or 0.125 with --dims 3");
}

}  // namespace

apps::Parsed parse(int argc, const char* const* argv, Options& options) {
  CLI::App app("Spreads heat in a box that wraps around, by explicit steps.", "heat");
  MeshOptions mesh;
  add_mesh_options(app, mesh);
  app.add_option("-t,--timesteps", options.steps, "steps")->transform(apps::whole_number())->capture_default_str();
  apps::add_choice(app, "--start", options.start, kStarts, "sine (default; its exact solution is known) or spots");
  apps::add_frame_options(app, options.frames, "--image and --field");
  apps::add_common_options(app, options.common, "-c,--comm,--comm-space");
  app.footer("Long options may have one dash, as in -nx 256.");
  app.callback([&] {
    mesh.fill(options);
    apps::check(options.frames, !options.common.image.empty() || !options.common.field.empty());
  });
  return apps::parse(app, argc, argv);
}

}  // namespace heat
