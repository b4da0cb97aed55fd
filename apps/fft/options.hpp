// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"
#include "apps/common/options.hpp"

namespace fft {

using apps::Index;

struct Options {
  apps::CommonOptions common;
  Index nx = 64;
  Index ny = 64;
  Index nz = 64;
  Index steps = 10;  ///< each is a transform and its inverse
  int slabs = 1;     ///< of a transposition, at most

  apps::Mesh mesh() const { return {.nx = nx, .ny = ny, .nz = nz}; }
  double updates() const { return static_cast<double>(mesh().cells()) * static_cast<double>(steps); }
};

apps::Parsed parse(int argc, const char* const* argv, Options& options);

}  // namespace fft
