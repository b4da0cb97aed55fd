// SPDX-License-Identifier: Apache-2.0
#include "apps/channel_flow/options.hpp"

#include "apps/common/mesh_options.hpp"

#include <CLI/CLI.hpp>

#include <tuple>

namespace channel_flow {

apps::Parsed parse(int argc, const char* const* argv, Options& options) {
  CLI::App app("Steps of an incompressible flow between two walls, in pencils.", "channel_flow");
  apps::MeshOptions mesh;
  apps::add_side_options(app, mesh, apps::whole_number(2, 1 << 16),
                         {"cells along x, in which the flow is periodic; default: 32",
                          "cells along y, in which the flow is periodic", "cells from wall to wall"});
  app.add_option("-t,--timesteps", options.steps, "steps")->transform(apps::whole_number())->capture_default_str();
  app.add_option("--slabs", options.slabs, "parts of each transposition and sweep, one behind the other")
      ->transform(apps::whole_number(1, 1024))
      ->capture_default_str();
  apps::add_run_options(app, options.common, "--comm", "cells and halos");
  app.footer("Long options may have one dash, as in -nx 128.");
  app.callback([&] { std::tie(options.nx, options.ny, options.nz) = mesh.sides(32); });
  return apps::parse(app, argc, argv);
}

}  // namespace channel_flow
