// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/options.hpp"
#include "apps/faces/problem.hpp"

namespace faces {

struct Options {
  apps::CommonOptions common;
  Index nodes = 16;
  Index steps = 1000;

  /// Number of updates of a copy of a node.
  double updates(int ranks) const {
    return static_cast<double>(ranks) * static_cast<double>(nodes * nodes * nodes) * static_cast<double>(steps);
  }
};

apps::Parsed parse(int argc, const char* const* argv, Options& options);

}  // namespace faces
