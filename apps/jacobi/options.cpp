// SPDX-License-Identifier: Apache-2.0
#include "apps/jacobi/options.hpp"

#include <limits>
#include <string>

namespace jacobi {

apps::Parsed parse(int argc, const char* const* argv, Options& options) {
  CLI::App app("Solves Laplace's equation in two dimensions by Jacobi's method with a five-point stencil.", "jacobi");
  std::string periodic = "y";
  const CLI::Range points(apps::Index{3}, apps::Index{1} << 24);
  const CLI::Range counts(apps::Index{0}, std::numeric_limits<apps::Index>::max());
  app.add_option("--nx", options.nx, "points along x, with the boundary")->check(points)->capture_default_str();
  app.add_option("--ny", options.ny, "points along y, with the boundary")->check(points)->capture_default_str();
  app.add_option("--niter", options.iterations, "iterations at most")->check(counts)->capture_default_str();
  app.add_option("--nccheck", options.norm_every, "compute the norm every so many iterations; 0: never")
      ->check(counts)
      ->capture_default_str();
  app.add_option("--tolerance", options.tolerance, "stop when the norm is not above it")->capture_default_str();
  app.add_option("--periodic", periodic, "where the mesh wraps around: none, x, y or xy; default: y")
      ->check(CLI::IsMember({"none", "x", "y", "xy"}))
      ->option_text("none|x|y|xy");
  app.add_flag("--csv-line", options.csv_line,
               "print one line: comm, nx, ny, niter, nccheck, ranks, 1, time, serial time (-csv)");
  apps::add_common_options(app, options.common);
  app.footer("Long options may have one dash, as in -nx 16384 -niter 1000 -nccheck 1 -csv.");
  apps::Parsed parsed = apps::parse(app, argc, argv, {{"csv", "csv-line"}});
  options.periodic_x = periodic.starts_with('x');
  options.periodic_y = periodic.ends_with('y');
  return parsed;
}

}  // namespace jacobi
