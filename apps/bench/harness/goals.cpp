// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/goals.hpp"

#include "apps/bench/harness/options.hpp"
#include "apps/common/sizes.hpp"
#include "apps/common/usage_error.hpp"

#include <algorithm>
#include <charconv>

namespace bench {
namespace {

// Cuts `text` at the first `mark`: returns what is before it, and leaves what is behind it; without a mark, returns
// nothing.
std::optional<std::string_view> before(std::string_view& text, char mark) {
  const auto at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at + 1);
  return part;
}

Goal parse_goal(const std::string& text) {
  Goal goal{.text = text, .metric = {}, .rival = {}};
  std::string_view rest = text;
  goal.metric = before(rest, '/').value_or("");
  goal.rival = before(rest, '=').value_or("");
  const auto number = before(rest, '@');
  const std::string_view ratio = number.value_or(rest);
  const auto read = std::from_chars(ratio.data(), ratio.data() + ratio.size(), goal.ratio);
  if (goal.rival.empty() || read.ec != std::errc{} || read.ptr != ratio.data() + ratio.size() || goal.ratio <= 0)
    throw apps::UsageError("'" + text + "' is no goal: [METRIC/]RIVAL=RATIO[@MIN:MAX]");
  if (number) {
    const auto min = before(rest, ':');
    goal.min_bytes = apps::parse_size(min.value_or(rest));
    goal.max_bytes = apps::parse_size(rest);
  }
  return goal;
}

}  // namespace

bool Goal::is_for(std::string_view metric_name, std::string_view rival_name, std::size_t bytes) const {
  const bool is_rival =
      rival.ends_with('*') ? rival_name.starts_with(rival.substr(0, rival.size() - 1)) : rival_name == rival;
  return is_rival && metric_name.find(metric) != std::string_view::npos && bytes >= min_bytes && bytes <= max_bytes;
}

std::vector<Goal> parse_goals(std::string_view text) {
  std::vector<Goal> goals;
  for (const std::string& part : split(text)) goals.push_back(parse_goal(part));
  return goals;
}

std::optional<double> goal_of(const std::vector<Goal>& goals, std::string_view metric, std::string_view rival,
                              std::size_t bytes) {
  std::optional<double> largest;
  for (const Goal& goal : goals) {
    if (goal.is_for(metric, rival, bytes)) largest = std::max(largest.value_or(0), goal.ratio);
  }
  return largest;
}

}  // namespace bench
