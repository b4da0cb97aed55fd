// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/frames.hpp"
#include "apps/common/options.hpp"
#include "apps/heat/problem.hpp"

namespace heat {

struct Options {
  apps::CommonOptions common;
  Index nx = 512;
  Index ny = 512;
  Index nz = 1;  ///< 1: two dimensions
  Index steps = 1000;
  double fourier = 0.2;
  Start start = Start::sine;
  apps::FrameOptions frames;

  Problem problem() const { return {nx, ny, nz, fourier, start}; }
  /// Number of cell updates.
  double updates() const { return static_cast<double>(problem().mesh().cells()) * static_cast<double>(steps); }
};

/// Parses the flags of CabanaGhost's programs and those of this one.
apps::Parsed parse(int argc, const char* const* argv, Options& options);

}  // namespace heat
