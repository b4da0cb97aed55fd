// SPDX-License-Identifier: Apache-2.0
#include "apps/fft/options.hpp"

#include <CLI/CLI.hpp>

#include <optional>

namespace fft {

apps::Parsed parse(int argc, const char* const* argv, Options& options) {
  CLI::App app("Transforms a box by Fourier and back, in pencils.", "fft");
  std::optional<Index> all, nx, ny, nz;
  const CLI::Validator cells = apps::whole_number(1, 1 << 16);
  app.add_option("--nx", nx, "cells along x; default: 64")->transform(cells);
  app.add_option("--ny", ny, "cells along y")->transform(cells);
  app.add_option("--nz", nz, "cells along z")->transform(cells);
  app.add_option("-n,--num-cells", all, "cells along each axis")->transform(cells);
  app.add_option("-t,--timesteps", options.steps, "steps; each is a transform and its inverse")
      ->transform(apps::whole_number())
      ->capture_default_str();
  app.add_option("--slabs", options.slabs, "exchange each transposition in so many parts, one behind the other")
      ->transform(apps::whole_number(1, 1024))
      ->capture_default_str();
  apps::add_run_options(app, options.common, "--comm", "the cells");
  app.footer("Long options may have one dash, as in -nx 128.");
  app.callback([&] {
    options.nx = nx.value_or(all.value_or(options.nx));
    options.ny = ny.value_or(all.value_or(options.ny));
    options.nz = nz.value_or(all.value_or(options.nz));
  });
  return apps::parse(app, argc, argv);
}

}  // namespace fft
