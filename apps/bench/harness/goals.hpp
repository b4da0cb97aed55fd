// SPDX-License-Identifier: Apache-2.0
// The least ratio to each rival that a row should reach.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

struct Goal {
  std::string text;    ///< as it was given
  std::string metric;  ///< a part of the metric's name; empty: all metrics
  std::string rival;   ///< a name, or with a * at its end all names that begin so
  double ratio = 1;
  std::size_t min_bytes = 0;
  std::size_t max_bytes = std::numeric_limits<std::size_t>::max();

  bool is_for(std::string_view metric_name, std::string_view rival_name, std::size_t bytes) const;
};

/// "[METRIC/]RIVAL=RATIO[@MIN:MAX]", several separated by commas: "floor=0.97@64k:4m,synchronised/floor=0.55,mpi*=1".
/// @throws apps::UsageError for any other text
std::vector<Goal> parse_goals(std::string_view text);

/// The largest ratio of the goals that are for this rival in such a row; unset if there is none.
std::optional<double> goal_of(const std::vector<Goal>& goals, std::string_view metric, std::string_view rival,
                              std::size_t bytes);

}  // namespace bench
