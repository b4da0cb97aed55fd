// SPDX-License-Identifier: Apache-2.0
#include "apps/life/draft.hpp"

#include "apps/common/usage_error.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <stdexcept>
#include <utility>

namespace life {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // some editors begin a file with it

bool take_coordinate(std::string_view& text, Index& value) {
  text = trimmed(text);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return error == std::errc() && value >= -kLargestSide && value <= kLargestSide;
}

}  // namespace

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool read_point(std::string_view text, Point& point) {
  return take_coordinate(text, point.x) && !text.empty() && is_space(text[0]) && take_coordinate(text, point.y) &&
         trimmed(text).empty();
}

Torus sides(const Chosen& chosen, const std::optional<StatedRule>& of_file) {
  std::optional<Torus> torus = chosen.rule ? chosen.rule->torus : std::nullopt;
  if (!torus && of_file) torus = of_file->torus;
  const Torus unchosen = torus.value_or(Torus{kUsualSide, kUsualSide});
  return {chosen.nx.value_or(unchosen.nx), chosen.ny.value_or(unchosen.ny)};
}

Draft::Draft(std::string name, std::string_view text, const Chosen& chosen)
    : name_(std::move(name)), text_(text), chosen_(chosen) {
  if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  rewind();
}

void Draft::rewind() {
  rest_ = text_;
  line_ = 0;
}

bool Draft::next(std::string_view& line) {
  if (rest_.empty()) return false;
  const std::size_t end = std::min(rest_.find_first_of("\r\n"), rest_.size());
  line = rest_.substr(0, end);
  rest_.remove_prefix(end);
  rest_.remove_prefix(std::min<std::size_t>(rest_.starts_with("\r\n") ? 2 : 1, rest_.size()));
  ++line_;
  return true;
}

void Draft::fail(const std::string& what) const {
  throw apps::UsageError(fmt::format("{}:{}: {}", name_, line_, what));
}

void Draft::take_rule(std::string_view text) {
  if (chosen_.rule && chosen_.rule->torus) return;
  StatedRule stated;
  try {
    stated = parse_stated_rule(text);
  } catch (const std::invalid_argument& error) {
    if (chosen_.rule) return;
    fail(error.what());
  }
  if (pattern.rule) {
    if (!stated.torus) stated.torus = pattern.rule->torus;
    const bool same_rule = chosen_.rule || pattern.rule->rule == stated.rule;
    const bool same_torus = !pattern.rule->torus || pattern.rule->torus == stated.torus;
    if (!same_rule || !same_torus) fail(fmt::format("'{}' is a second rule", text));
  }
  pattern.rule = stated;
  const Torus sides = world();
  if (stated.torus && *stated.torus != sides)
    fail(fmt::format("'{}' is for a torus of another size than the world's {} x {} (--nx, --ny)", text, sides.nx,
                     sides.ny));
}

void Draft::take_size(Index nx, Index ny) {
  const Torus most = world();
  if (nx > most.nx || ny > most.ny)
    fail(fmt::format("a pattern of {} x {} cells, more than the world's {} x {} (--nx, --ny)", nx, ny, most.nx,
                     most.ny));
  pattern.nx = nx;
  pattern.ny = ny;
}

Torus Draft::world() const { return sides(chosen_, pattern.rule); }

}  // namespace life
