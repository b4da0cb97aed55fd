// SPDX-License-Identifier: Apache-2.0
#include "collectives/loggp.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/text.hpp"

namespace sluice::collectives {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// The shortest digits that give the number again.
std::string digits_of(double number) {
  std::array<char, 32> digits{};
  const auto written = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  return {digits.data(), written.ptr};
}

/// Costs are finite, and not negative.
std::optional<double> cost_of(std::string_view text) {
  const auto number = number_of<double>(text);
  return number && std::isfinite(*number) && *number >= 0 ? number : std::nullopt;
}

std::optional<Line> line_of(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::size_t plus = text.find('+', colon == std::string_view::npos ? 0 : colon);
  if (colon == std::string_view::npos || plus == std::string_view::npos) return std::nullopt;
  const auto from = number_of<std::size_t>(text.substr(0, colon));
  const auto fixed = number_of<double>(text.substr(colon + 1, plus - colon - 1));
  const auto per_byte = cost_of(text.substr(plus + 1));
  if (!from || !fixed || !std::isfinite(*fixed) || !per_byte) return std::nullopt;
  return Line{*from, *fixed, *per_byte};
}

std::optional<ByteCost> byte_cost_of(std::string_view text) {
  std::vector<Line> lines;
  for (const std::string_view word : base::words_of(text)) {
    const auto line = line_of(trimmed(word));
    if (!line || (lines.empty() ? line->from != 0 : line->from <= lines.back().from)) return std::nullopt;
    lines.push_back(*line);
  }
  if (lines.empty()) return std::nullopt;
  return ByteCost(std::move(lines));
}

template <class Value>
bool put(Value& to, std::optional<Value> value) {
  if (value) to = std::move(*value);
  return value.has_value();
}

bool set(LogGP& costs, std::string_view key, std::string_view value) {
  if (key == "L") return put(costs.latency, cost_of(value));
  if (key == "o_s") return put(costs.send, cost_of(value));
  if (key == "o_r") return put(costs.receive, cost_of(value));
  if (key == "g") return put(costs.gap, cost_of(value));
  if (key == "G") return put(costs.bytes, byte_cost_of(value));
  if (key == "way") return put(costs.way, byte_cost_of(value));
  if (key == "copy") return put(costs.copy, byte_cost_of(value));
  if (key == "step") return put(costs.step, cost_of(value));
  return key == "combine" && put(costs.combine, byte_cost_of(value));
}

bool set(Parameters& parameters, std::string_view line) {
  const std::size_t point = line.find('.');
  const std::size_t equals = line.find('=');
  if (point == std::string_view::npos || equals == std::string_view::npos || equals < point) return false;
  const std::string_view of = line.substr(0, point);
  if (of != "mapped" && of != "network") return false;
  return set(of == "mapped" ? parameters.mapped : parameters.network,
             trimmed(line.substr(point + 1, equals - point - 1)), trimmed(line.substr(equals + 1)));
}

}  // namespace

double ByteCost::operator()(std::size_t bytes) const noexcept {
  if (bytes == 0 || lines_.empty()) return 0;
  auto line = lines_.begin();
  while (line + 1 != lines_.end() && (line + 1)->from <= bytes) ++line;
  return std::max(0.0, line->fixed + line->per_byte * static_cast<double>(bytes));
}

std::string ByteCost::text() const {
  std::string text;
  for (const Line& line : lines_)
    text += (text.empty() ? "" : ",") + std::to_string(line.from) + ":" + base::decimal(line.fixed, 2) + "+" +
            base::decimal(line.per_byte, 5);
  return text;
}

Parameters parse_parameters(std::string_view text, std::string source) {
  Parameters parsed = built_in();
  parsed.source = std::move(source);
  for (const std::string_view whole : base::words_of(text, '\n')) {
    const std::string_view line = trimmed(whole.substr(0, whole.find('#')));
    if (!line.empty() && !set(parsed, line))
      throw std::invalid_argument("SLUICE_MODEL: " + parsed.source + ": no parameter and its cost: '" +
                                  std::string(line) + "'");
  }
  return parsed;
}

std::string text_of(const LogGP& costs, std::string_view name) {
  const auto line = [&](const char* key, const std::string& value) {
    return value.empty() ? "" : std::string(name) + "." + key + " = " + value + "\n";
  };
  return line("L", base::decimal(costs.latency, 1)) + line("o_s", base::decimal(costs.send, 1)) +
         line("o_r", base::decimal(costs.receive, 1)) + line("g", base::decimal(costs.gap, 1)) +
         line("G", costs.bytes.text()) + line("way", costs.way.text()) + line("copy", costs.copy.text()) +
         line("combine", costs.combine.text()) + line("step", base::decimal(costs.step, 1));
}

std::string exact_text_of(const LogGP& costs) {
  std::string text;
  for (const double cost : {costs.latency, costs.send, costs.receive, costs.gap, costs.step})
    text += digits_of(cost) + " ";
  for (const ByteCost* const cost : {&costs.bytes, &costs.way, &costs.copy, &costs.combine}) {
    for (const Line& line : cost->lines())
      text += std::to_string(line.from) + ":" + digits_of(line.fixed) + "+" + digits_of(line.per_byte) + " ";
    text += ';';
  }
  return text;
}

/// Rounded from `sluice-bench model --write-model` on two cores of a virtual machine of an AMD EPYC (Zen 5), of which
/// one got a line of the other in 200 ns: mapped memory, and TCP over loopback by libfabric, whose latency is all work
/// of the processors.
const Parameters& built_in() {
  static const Parameters parameters{
      .mapped = {.latency = 190,
                 .send = 8,
                 .receive = 50,
                 .gap = 60,
                 .bytes = ByteCost({{0, 2, 0.0185}, {32768, 35, 0.0225}}),
                 .way = ByteCost({{0, 0, 0.022}, {16384, 55, 0.024}}),
                 .copy = ByteCost({{0, 75, 0.08}, {2048, 100, 0.37}, {16384, -680, 0.56}}),
                 .combine = ByteCost({{0, 70, 0.19}, {2048, -100, 0.51}}),
                 .step = 44},
      .network = {.latency = 0,
                  .send = 7700,
                  .receive = 0,
                  .gap = 8900,
                  .bytes = ByteCost({{0, 115, 0.093}}),
                  .way = ByteCost({{0, 0, 0.22}}),
                  .copy = ByteCost({{0, 37, 0.0037}}),
                  .combine = ByteCost({{0, 24, 0.0165}})},
      .source = "built in"};
  return parameters;
}

}  // namespace sluice::collectives
