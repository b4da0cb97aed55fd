// SPDX-License-Identifier: Apache-2.0
#include "apps/cg/options.hpp"

#include <CLI/CLI.hpp>

#include <cmath>
#include <optional>

namespace cg {
namespace {

// The options for the mesh.
struct MeshOptions {
  int dims = 2;
  std::optional<Index> nx, ny, nz, all;

  void fill(Options& options) const {
    if (dims == 2 && nz) throw CLI::ValidationError("--nz", "two dimensions have no z (--dims 3)");
    const Index side = all.value_or(dims == 2 ? 512 : 64);
    options.nx = nx.value_or(side);
    options.ny = ny.value_or(side);
    options.nz = dims == 2 ? 1 : nz.value_or(side);
  }
};

void add_mesh_options(CLI::App& app, MeshOptions& mesh) {
  const CLI::Validator cells = apps::whole_number(3, 1 << 24);
  app.add_option("--dims", mesh.dims, "dimensions: 2 (default; five-point stencil) or 3 (seven points)")
      ->check(CLI::IsMember({2, 3}))
      ->option_text("2|3");
  app.add_option("--nx", mesh.nx, "cells along x; default: 512, or 64 with --dims 3")->transform(cells);
  app.add_option("--ny", mesh.ny, "cells along y")->transform(cells);
  app.add_option("--nz", mesh.nz, "cells along z")->transform(cells);
  app.add_option("-n,--num-cells", mesh.all, "cells along each axis")->transform(cells);
}

}  // namespace

apps::Parsed parse(int argc, const char* const* argv, Options& options) {
  CLI::App app("Solves Poisson's equation by pipelined conjugate gradients.", "cg");
  MeshOptions mesh;
  add_mesh_options(app, mesh);
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
    mesh.fill(options);
    if (std::isnan(options.tolerance)) throw CLI::ValidationError("--tolerance", "nan is no residual");
  });
  return apps::parse(app, argc, argv);
}

}  // namespace cg
