// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <tuple>

#include "apps/common/mesh.hpp"
#include "apps/common/options.hpp"

namespace apps {

/// The sides of a mesh, of each axis and of all, and its number of dimensions.
struct MeshOptions {
  int dims = 3;
  std::optional<Index> nx, ny, nz, all;

  /// Cells along x, y and z. `side`: where no option gives the number. @throws CLI::ValidationError
  std::tuple<Index, Index, Index> sides(Index side) const;
};

/// `--dims 2|3`; the default is 2. `stencils`: behind each number in the help.
void add_dims_option(CLI::App& app, MeshOptions& mesh, const std::array<std::string, 2>& stencils);

/// `--nx`, `--ny`, `--nz` and an option for all of them. `texts`: what the help says of each axis.
void add_side_options(CLI::App& app, MeshOptions& mesh, const CLI::Validator& cells,
                      const std::array<std::string, 3>& texts, const std::string& all = "-n,--num-cells");

}  // namespace apps
