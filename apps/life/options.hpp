// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/frames.hpp"
#include "apps/common/options.hpp"
#include "apps/life/rle.hpp"
#include "apps/life/world.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace life {

struct Options {
  apps::CommonOptions common;
  Index nx = 128;
  Index ny = 128;
  Index generations = 100;
  std::string pattern;      ///< file to read; empty: cells at random
  std::optional<Point> at;  ///< where the pattern's upper left corner goes; unset: in the middle
  double density = 0.3;     ///< of random cells
  std::uint64_t seed = 1;
  std::optional<Rule> rule;  ///< unset: the pattern's, else B3/S23
  std::string rle;           ///< file to write
  apps::FrameOptions frames;

  /// How often a cell is updated.
  double updates() const {
    return static_cast<double>(nx) * static_cast<double>(ny) * static_cast<double>(generations);
  }
};

/// The options of CabanaGhost's Game of Life and our own.
apps::Parsed parse(int argc, const char* const* argv, Options& options);

/// The world that the options describe; reads the pattern. @throws apps::UsageError
World make_world(const Options& options);

}  // namespace life
