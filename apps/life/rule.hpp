// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace life {

using apps::Index;

/// The most cells that a world has along x or y.
inline constexpr Index kLargestSide = Index{1} << 24;

/// A two-state rule that counts the eight neighbours: if bit k of `birth` (`survival`) is set, a dead (live) cell with
/// k live neighbours is alive in the next generation.
struct Rule {
  std::uint16_t birth = 1U << 3;
  std::uint16_t survival = 1U << 2 | 1U << 3;

  bool operator==(const Rule&) const = default;

  /// Returns true if a cell is alive in the next generation, given its state and the number of its live neighbours.
  constexpr bool next(bool alive, unsigned neighbours) const {
    return ((alive ? survival : birth) >> neighbours & 1U) != 0;
  }
};

/// The sides of a world.
struct Torus {
  Index nx = 0;
  Index ny = 0;

  bool operator==(const Torus&) const = default;
};

/// A rule as files and command lines state it: for any world, or for one torus.
struct StatedRule {
  Rule rule;
  std::optional<Torus> torus = {};
};

/// Reads "B3/S23" (either case, the slash may be missing), "23/3" (survival first, as in older files), "Life" and
/// "Conway".
/// @throws std::invalid_argument
Rule parse_rule(std::string_view text);

/// Reads a rule with or without ":T30,20" behind it, a torus of 30 x 20 cells. Golly's other bounded grids are refused.
/// @throws std::invalid_argument
StatedRule parse_stated_rule(std::string_view text);

/// For example "B3/S23".
std::string rule_text(const Rule& rule);

}  // namespace life
