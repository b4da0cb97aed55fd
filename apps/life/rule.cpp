// SPDX-License-Identifier: Apache-2.0
#include "apps/life/rule.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <stdexcept>

namespace life {
namespace {

constexpr unsigned kMostNeighbours = 8;

// Removes the digits at the start of `text` and returns them as bits.
std::uint16_t take_counts(std::string_view& text) {
  unsigned counts = 0;
  while (!text.empty() && text[0] >= '0' && text[0] <= '8') {
    counts |= 1U << (text[0] - '0');
    text.remove_prefix(1);
  }
  return static_cast<std::uint16_t>(counts);
}

bool take(std::string_view& text, char what) {
  if (text.empty() || text[0] != what) return false;
  text.remove_prefix(1);
  return true;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

void append_counts(std::string& text, std::uint16_t counts) {
  for (unsigned k = 0; k <= kMostNeighbours; ++k)
    if ((counts >> k & 1U) != 0) text += static_cast<char>('0' + k);
}

bool take_side(std::string_view& text, Index& side) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), side);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return error == std::errc() && side >= 1 && side <= kLargestSide;
}

// ":T30,20"
Torus parse_torus(std::string_view text) {
  Torus torus;
  std::string_view rest = text.substr(1);
  if ((take(rest, 'T') || take(rest, 't')) && take_side(rest, torus.nx) && take(rest, ',') &&
      take_side(rest, torus.ny) && rest.empty())
    return torus;
  throw std::invalid_argument("'" + std::string(text) +
                              "' is no torus such as :T30,20, the only grid that there is here");
}

}  // namespace

Rule parse_rule(std::string_view text) {
  const std::string lower = lower_case(text);
  if (lower == "life" || lower == "conway") return {};
  std::string_view rest = lower;
  Rule rule;
  bool understood = !rest.empty();
  if (take(rest, 'b')) {
    rule.birth = take_counts(rest);
    take(rest, '/');
    understood = take(rest, 's');
    rule.survival = take_counts(rest);
  } else {
    const bool named = take(rest, 's');  // "S23/B3"
    rule.survival = take_counts(rest);
    understood = understood && take(rest, '/') && take(rest, 'b') == named;
    rule.birth = take_counts(rest);
  }
  if (!understood || !rest.empty())
    throw std::invalid_argument("'" + std::string(text) + "' is no rule such as B3/S23");
  return rule;
}

StatedRule parse_stated_rule(std::string_view text) {
  const std::size_t colon = text.find(':');
  StatedRule stated{.rule = parse_rule(text.substr(0, colon))};
  if (colon != std::string_view::npos) stated.torus = parse_torus(text.substr(colon));
  return stated;
}

std::string rule_text(const Rule& rule) {
  std::string text = "B";
  append_counts(text, rule.birth);
  text += "/S";
  append_counts(text, rule.survival);
  return text;
}

}  // namespace life
