// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/life/rule.hpp"

#include <cstdint>
#include <istream>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace life {

using Cell = std::uint8_t;  ///< 0: dead, 1: alive

struct Point {
  Index x = 0;
  Index y = 0;

  bool operator==(const Point&) const = default;
};

/// The number of cells of a world along x or y if no option and no file gives one.
inline constexpr Index kUsualSide = 128;

/// Properties of a world that the command line sets. They override those of a pattern's file.
struct Chosen {
  std::optional<Index> nx = {};
  std::optional<Index> ny = {};
  std::optional<StatedRule> rule = {};
};

/// The sides of a world: those chosen, else those of the rule's torus, else kUsualSide.
/// @param of_file  the rule of the pattern's file, if that names one
Torus sides(const Chosen& chosen, const std::optional<StatedRule>& of_file);

/// A picture of live cells in an nx x ny rectangle.
struct Pattern {
  Index nx = 0;
  Index ny = 0;
  std::optional<StatedRule> rule = {};  ///< if the file names one; if another was chosen, only its torus counts
  std::vector<Point> cells = {};        ///< the live ones
};

/// Reads a pattern in one of the formats that Life programs exchange. The first lines of the file decide which format
/// it is. Line ends may be those of any system.
///
/// * Run-length encoded (conwaylife.com/wiki/Run_Length_Encoded): comment lines that start with '#'; "#r" there names
///   a rule. A header "x = 3, y = 3, rule = B3/S23" that may be missing. Then counts and tags (b or . dead, o or A
///   alive, $ end of a row), up to '!'. Text behind that is left alone.
/// * Plaintext (conwaylife.com/wiki/Plaintext): comment lines that start with '!', and rows of '.' and 'O'.
/// * Life 1.05 (conwaylife.com/wiki/Life_1.05): blocks of rows of '.' and '*', each at the place that its line
///   "#P x y" names.
/// * Life 1.06 (conwaylife.com/wiki/Life_1.06): a line "x y" for each live cell.
///
/// @param name  the file's, for messages
/// @param chosen  a pattern larger than that world is refused, and a rule for a torus of another size
/// @throws apps::UsageError "NAME:LINE: what is wrong"
Pattern read_pattern(std::istream& in, const std::string& name, const Chosen& chosen);
Pattern read_pattern_file(const std::string& name, const Chosen& chosen);

/// An nx x ny field as a run-length encoded file, whole, so that reading it back at (0, 0) gives the field again.
std::string to_rle(std::span<const Cell> cells, Index nx, Index ny, const Rule& rule);

}  // namespace life
