// SPDX-License-Identifier: Apache-2.0
#include "apps/channel_flow/options.hpp"

#include <CLI/CLI.hpp>

#include <optional>

namespace channel_flow {

apps::Parsed parse(int argc, const char* const* argv, Options& options) {
  CLI::App app("Steps of an incompressible flow between two walls, in pencils.", "channel_flow");
  std::optional<Index> all, nx, ny, nz;
  const CLI::Validator cells = apps::whole_number(2, 1 << 16);
  app.add_option("--nx", nx, "cells along x, in which the flow is periodic; default: 32")->transform(cells);
  app.add_option("--ny", ny, "cells along y, in which the flow is periodic")->transform(cells);
  app.add_option("--nz", nz, "cells from wall to wall")->transform(cells);
  app.add_option("-n,--num-cells", all, "cells along each axis")->transform(cells);
  app.add_option("-t,--timesteps", options.steps, "steps")->transform(apps::whole_number())->capture_default_str();
  app.add_option("--slabs", options.slabs, "parts of each transposition and sweep, one behind the other")
      ->transform(apps::whole_number(1, 1024))
      ->capture_default_str();
  apps::add_run_options(app, options.common, "--comm", "cells and halos");
  app.footer("Long options may have one dash, as in -nx 128.");
  app.callback([&] {
    options.nx = nx.value_or(all.value_or(options.nx));
    options.ny = ny.value_or(all.value_or(options.ny));
    options.nz = nz.value_or(all.value_or(options.nz));
  });
  return apps::parse(app, argc, argv);
}

}  // namespace channel_flow
