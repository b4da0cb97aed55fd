// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"
#include "apps/life/rule.hpp"

#include <cstdint>
#include <istream>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace life {

using apps::Index;
using Cell = std::uint8_t;  ///< 0: dead, 1: alive

struct Point {
  Index x = 0;
  Index y = 0;

  bool operator==(const Point&) const = default;
};

/// The most cells that a world has along x or y.
inline constexpr Index kLargestSide = Index{1} << 24;

/// A picture of live cells in an nx x ny rectangle.
struct Pattern {
  Index nx = 0;
  Index ny = 0;
  std::optional<Rule> rule;  ///< if the file names one
  std::vector<Point> cells;  ///< the live ones, row by row
};

/// Reads a pattern in the run-length encoded format that Life programs exchange
/// (conwaylife.com/wiki/Run_Length_Encoded): comment lines that start with '#', a header "x = 3, y = 3, rule = B3/S23"
/// that may be missing, then counts and tags (b or . dead, o or A alive, $ end of a row), up to '!'. Text behind that
/// is left alone.
/// @param name  the file's, for messages
/// @param world  the sides of the one that it is for: a larger pattern is refused
/// @throws apps::UsageError "NAME:LINE: what is wrong"
Pattern read_rle(std::istream& in, const std::string& name, const Point& world = {kLargestSide, kLargestSide});
Pattern read_rle_file(const std::string& name, const Point& world = {kLargestSide, kLargestSide});

/// An nx x ny field as such a file, whole, so that reading it back at (0, 0) gives the field again.
std::string to_rle(std::span<const Cell> cells, Index nx, Index ny, const Rule& rule);

}  // namespace life
