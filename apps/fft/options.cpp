// SPDX-License-Identifier: Apache-2.0
#include "apps/fft/options.hpp"

#include "apps/common/mesh_options.hpp"

#include <CLI/CLI.hpp>

#include <tuple>

namespace fft {

apps::Parsed parse(int argc, const char* const* argv, Options& options) {
  CLI::App app("Transforms a box by Fourier and back, in pencils.", "fft");
  apps::MeshOptions mesh;
  apps::add_side_options(app, mesh, apps::whole_number(1, 1 << 16),
                         {"cells along x; default: 64", "cells along y", "cells along z"});
  app.add_option("-t,--timesteps", options.steps, "steps; each is a transform and its inverse")
      ->transform(apps::whole_number())
      ->capture_default_str();
  app.add_option("--slabs", options.slabs, "exchange each transposition in so many parts, one behind the other")
      ->transform(apps::whole_number(1, 1024))
      ->capture_default_str();
  apps::add_run_options(app, options.common, "--comm", "the cells");
  app.footer("Long options may have one dash, as in -nx 128.");
  app.callback([&] { std::tie(options.nx, options.ny, options.nz) = mesh.sides(64); });
  return apps::parse(app, argc, argv);
}

}  // namespace fft
