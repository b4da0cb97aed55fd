// SPDX-License-Identifier: Apache-2.0
#include "apps/common/mesh_options.hpp"

#include <CLI/CLI.hpp>

namespace apps {

std::tuple<Index, Index, Index> MeshOptions::sides(Index side) const {
  if (dims == 2 && nz) throw CLI::ValidationError("--nz", "two dimensions have no z (--dims 3)");
  const Index other = all.value_or(side);
  return {nx.value_or(other), ny.value_or(other), dims == 2 ? 1 : nz.value_or(other)};
}

void add_dims_option(CLI::App& app, MeshOptions& mesh, const std::array<std::string, 2>& stencils) {
  mesh.dims = 2;
  app.add_option("--dims", mesh.dims, "dimensions: 2 (default" + stencils[0] + ") or 3" + stencils[1])
      ->check(CLI::IsMember({2, 3}))
      ->option_text("2|3");
}

void add_side_options(CLI::App& app, MeshOptions& mesh, const CLI::Validator& cells,
                      const std::array<std::string, 3>& texts, const std::string& all) {
  app.add_option("--nx", mesh.nx, texts[0])->transform(cells);
  app.add_option("--ny", mesh.ny, texts[1])->transform(cells);
  app.add_option("--nz", mesh.nz, texts[2])->transform(cells);
  app.add_option(all, mesh.all, "as many along each axis")->transform(cells);
}

}  // namespace apps
