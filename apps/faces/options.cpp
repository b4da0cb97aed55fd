// SPDX-License-Identifier: Apache-2.0
#include "apps/faces/options.hpp"

#include <CLI/CLI.hpp>

namespace faces {

apps::Parsed parse(int argc, const char* const* argv, Options& options) {
  CLI::App app("Adds up what blocks have on common faces, edges and corners, as spectral elements do.", "faces");
  app.add_option("-n,--nodes", options.nodes, "nodes of each rank's block along each axis")
      ->transform(apps::whole_number(2, 1 << 10))
      ->capture_default_str();
  app.add_option("-t,--timesteps", options.steps, "steps")->transform(apps::whole_number())->capture_default_str();
  apps::add_common_options(app, options.common);
  app.footer("Long options may have one dash, as in -nodes 32.");
  return apps::parse(app, argc, argv);
}

}  // namespace faces
