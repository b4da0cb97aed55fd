// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace life {

/// A two-state rule that counts the eight neighbours: bit k of `birth` (`survival`) says that a dead (live) cell with k
/// live neighbours is alive in the next generation.
struct Rule {
  std::uint16_t birth = 1U << 3;
  std::uint16_t survival = 1U << 2 | 1U << 3;

  bool operator==(const Rule&) const = default;

  /// Whether a cell is alive next, given that it is now and how many of its neighbours are.
  constexpr bool next(bool alive, unsigned neighbours) const {
    return ((alive ? survival : birth) >> neighbours & 1U) != 0;
  }
};

/// Reads "B3/S23" (either case, the slash may be missing), "23/3" (survival first, as older files write it), "Life" and
/// "Conway"; what follows a colon, the shape of a bounded grid, is left out. @throws std::invalid_argument
Rule parse_rule(std::string_view text);

/// As "B3/S23".
std::string rule_text(const Rule& rule);

}  // namespace life
