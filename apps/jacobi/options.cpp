// SPDX-License-Identifier: Apache-2.0
#include "apps/jacobi/options.hpp"

#include "apps/common/mesh_options.hpp"

#include <CLI/CLI.hpp>

#include <cmath>
#include <optional>
#include <string>
#include <tuple>

namespace jacobi {
namespace {

// The options for the mesh.
struct MeshOptions : apps::MeshOptions {
  std::optional<std::string> periodic;

  void fill(Options& options) const {
    std::tie(options.nx, options.ny, options.nz) = sides(dims == 2 ? 1024 : 128);
    if (dims == 3 && periodic)
      throw CLI::ValidationError("--periodic", "with --dims 3 the boundary is fixed all around");
    options.periodic_x = periodic && periodic->starts_with('x');
    options.periodic_y = dims == 2 && periodic.value_or("y").ends_with('y');
  }
};

void add_mesh_options(CLI::App& app, MeshOptions& mesh) {
  apps::add_dims_option(app, mesh, {"; five-point stencil", " (27-point stencil)"});
  apps::add_side_options(
      app, mesh, apps::whole_number(3, 1 << 24),
      {"points along x, with the boundary; default: 1024, or 128 with --dims 3", "points along y", "points along z"});
  app.add_option("--periodic", mesh.periodic,
                 "where a mesh of two dimensions wraps around: none, x, y or xy; default: y")
      ->check(CLI::IsMember({"none", "x", "y", "xy"}))
      ->option_text("none|x|y|xy");
}

}  // namespace

apps::Parsed parse(int argc, const char* const* argv, Options& options) {
  CLI::App app("Solves Laplace's equation by Jacobi's method.", "jacobi");
  MeshOptions mesh;
  add_mesh_options(app, mesh);
  const CLI::Validator counts = apps::whole_number();
  app.add_option("--niter,-m,--max-iterations", options.iterations, "iterations at most")
      ->transform(counts)
      ->capture_default_str();
  app.add_option("--nccheck", options.norm_every, "compute the norm every so many iterations; 0: never")
      ->transform(counts)
      ->capture_default_str();
  app.add_option("-t,--tolerance", options.tolerance, "stop when the norm is not above it")->capture_default_str();
  app.add_flag("--csv-line", options.csv_line,
               "print one line: comm, nx, ny, niter, nccheck, ranks, 1, time, serial time (-csv)");
  apps::add_common_options(app, options.common);
  app.footer("Long options may have one dash, as in -nx 16384 -niter 1000 -nccheck 1 -csv.");
  app.callback([&] {
    mesh.fill(options);
    if (std::isnan(options.tolerance)) throw CLI::ValidationError("--tolerance", "nan is no norm");
  });
  return apps::parse(app, argc, argv, {{"csv", "csv-line"}});
}

}  // namespace jacobi
