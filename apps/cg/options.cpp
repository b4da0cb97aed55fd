// SPDX-License-Identifier: Apache-2.0
#include "apps/cg/options.hpp"

#include "apps/common/mesh_options.hpp"

#include <CLI/CLI.hpp>

#include <cmath>
#include <tuple>

namespace cg {

apps::Parsed parse(int argc, const char* const* argv, Options& options) {
  CLI::App app("Solves Poisson's equation by pipelined conjugate gradients.", "cg");
  apps::MeshOptions mesh;
  apps::add_dims_option(app, mesh, {"; five-point stencil", " (seven points)"});
  apps::add_side_options(app, mesh, apps::whole_number(3, 1 << 24),
                         {"cells along x; default: 512, or 64 with --dims 3", "cells along y", "cells along z"});
  const CLI::Validator counts = apps::whole_number();
  app.add_option("--niter,-m,--max-iterations", options.iterations, "iterations at most")
      ->transform(counts)
      ->capture_default_str();
  app.add_option("--nccheck", options.check_every, "look at the residual every so many iterations; 0: never")
      ->transform(counts)
      ->capture_default_str();
  app.add_option("-t,--tolerance", options.tolerance, "stop when the residual, as a part of the first, is not above it")
      ->capture_default_str();
  apps::add_common_options(app, options.common);
  app.footer("Long options may have one dash, as in -nx 256.");
  app.callback([&] {
    std::tie(options.nx, options.ny, options.nz) = mesh.sides(mesh.dims == 2 ? 512 : 64);
    if (std::isnan(options.tolerance)) throw CLI::ValidationError("--tolerance", "nan is no residual");
  });
  return apps::parse(app, argc, argv);
}

}  // namespace cg
