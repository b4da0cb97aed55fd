// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/options.hpp"
#include "apps/life/rle.hpp"
#include "apps/life/world.hpp"

#include <algorithm>
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
  std::string movie;         ///< file to write: a frame for each generation, or for each that is written
  Index write_every = 0;     ///< write picture and pattern every so many generations, too; 0: only the last

  /// Whether picture and pattern of a generation on the way are written, and whether it is a frame of the movie.
  bool writes(Index generation) const { return write_every > 0 && generation > 0 && generation % write_every == 0; }
  bool shows(Index generation) const {
    return !movie.empty() && (generation % std::max<Index>(write_every, 1) == 0 || generation == generations);
  }

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
