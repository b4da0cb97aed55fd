// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"
#include "apps/common/options.hpp"

namespace channel_flow {

using apps::Index;

struct Options {
  apps::CommonOptions common;
  Index nx = 32;
  Index ny = 32;
  Index nz = 32;
  Index steps = 10;
  int slabs = 2;  ///< of transpositions and sweeps, at most

  apps::Mesh mesh() const { return {.nx = nx, .ny = ny, .nz = nz, .periodic_x = true, .periodic_y = true}; }
  double updates() const { return static_cast<double>(mesh().cells()) * static_cast<double>(steps); }
};

apps::Parsed parse(int argc, const char* const* argv, Options& options);

}  // namespace channel_flow
