// SPDX-License-Identifier: Apache-2.0
#include "apps/heat/options.hpp"

#include "apps/common/choice.hpp"
#include "apps/common/mesh_options.hpp"

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <tuple>

namespace heat {
namespace {

const apps::Choices<Start> kStarts = {{"sine", Start::sine}, {"spots", Start::spots}};

// The options for the mesh.
struct MeshOptions : apps::MeshOptions {
  std::optional<double> fourier;

  void fill(Options& options) const {
    std::tie(options.nx, options.ny, options.nz) = sides(dims == 2 ? 512 : 64);
    const double most = 1.0 / (2 * dims);
    options.fourier = fourier.value_or(dims == 2 ? 0.2 : 0.125);
    const bool stable = options.fourier > 0 && options.fourier <= most;
    if (!stable)
      throw CLI::ValidationError("--fourier", "stable steps are above 0 and at most 1/" + std::to_string(2 * dims));
  }
};

void add_mesh_options(CLI::App& app, MeshOptions& mesh) {
  apps::add_dims_option(app, mesh, {"", ""});
  apps::add_side_options(app, mesh, apps::whole_number(3, 1 << 24),
                         {"cells along x; default: 512, or 64 with --dims 3", "cells along y", "cells along z"},
                         "-n,--ncells");
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
