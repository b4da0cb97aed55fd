// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/frames.hpp"
#include "apps/common/options.hpp"
#include "apps/life/pattern.hpp"
#include "apps/life/world.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace life {

struct Options {
  apps::CommonOptions common;
  std::optional<Index> nx;  ///< unset: that of the rule's torus, else kUsualSide
  std::optional<Index> ny;
  Index generations = 100;
  std::string pattern;      ///< file to read; empty: cells at random
  std::optional<Point> at;  ///< place of the pattern's upper left corner; unset: in the middle
  double density = 0.3;     ///< of random cells
  std::uint64_t seed = 1;
  std::optional<StatedRule> rule;  ///< unset: the pattern's, else B3/S23
  std::string rle;                 ///< file to write
  apps::FrameOptions frames;
};

/// Parses the options of CabanaGhost's Game of Life and those of this program.
apps::Parsed parse(int argc, const char* const* argv, Options& options);

/// The world that the options describe; reads the pattern. @throws apps::UsageError
World make_world(const Options& options);

}  // namespace life
