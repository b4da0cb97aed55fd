// SPDX-License-Identifier: Apache-2.0
// sluice::info: what sluice-info prints, for people or as JSON.
#include "backends/transport.hpp"
#include "base/env.hpp"
#include "base/text.hpp"

#include <sluice/run.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sluice {

namespace runtime {

namespace {

using base::json_text;

/// `null` for an empty text.
std::string text_or_null(std::string_view text) { return text.empty() ? "null" : json_text(text); }

std::string_view value_of(const base::Variable& variable) {
  const char* const set = std::getenv(variable.name);
  return set == nullptr ? variable.default_value : set;
}

using backends::Report;

/// The items' JSON, with `separator` between them.
template <class Range, class ToJson>
std::string joined(const Range& items, std::string_view separator, ToJson to_json) {
  std::string json;
  for (const auto& item : items) json += (json.empty() ? "" : std::string(separator)) + to_json(item);
  return json;
}

/// The fields that backends and providers have in common.
template <class Row>
std::string json_of_row(const Row& row) {
  return "\"name\": " + json_text(row.name) + ", \"usable\": " + (row.why_not.empty() ? "true" : "false") +
         ", \"why_not\": " + json_text(row.why_not) + ", \"level\": " + std::to_string(row.level);
}

std::string json_of(const backends::Backend& backend) { return "{" + json_of_row(backend) + "}"; }

std::string json_of(const base::Fact& value) {
  if (const auto* const fact = std::get_if<bool>(&value)) return *fact ? "true" : "false";
  if (const auto* const number = std::get_if<std::uint64_t>(&value)) return std::to_string(*number);
  const auto* const text = std::get_if<std::string>(&value);
  return text == nullptr ? "null" : json_text(*text);
}

std::string json_of(const Report::Facts& facts) {
  return joined(facts, ", ", [](const auto& fact) { return json_text(fact.first) + ": " + json_of(fact.second); });
}

std::string object_of(const Report::Facts& facts) { return "{" + json_of(facts) + "}"; }

std::string json_of(const Report& report) {
  return "{" + json_of_row(report) + (report.facts.empty() ? "" : ", ") + json_of(report.facts) + ", \"devices\": [" +
         (report.devices.empty() ? "" : "\n      ") + joined(report.devices, ",\n      ", object_of) + "]}";
}

/// The GPUs of all vendors that have a driver here.
std::vector<base::Facts> gpus() {
  std::vector<base::Facts> all;
  for (device::Driver* driver : device::drivers()) {
    for (int gpu = 0; gpu < driver->devices() && driver->why_not().empty(); ++gpu) all.push_back(driver->facts(gpu));
  }
  return all;
}

std::string json_of(const base::Variable& variable) {
  return "{\"name\": " + json_text(variable.name) + ", \"kind\": " + json_text(variable.kind) +
         ", \"default\": " + text_or_null(variable.default_value) + ", \"value\": " + text_or_null(value_of(variable)) +
         ", \"meaning\": " + json_text(variable.meaning) + "}";
}

constexpr auto kToJson = [](const auto& item) { return json_of(item); };

template <class Range, class ToJson>
std::string json_list(const Range& items, ToJson to_json) {
  return std::empty(items) ? "[]" : "[\n    " + joined(items, ",\n    ", to_json) + "\n  ]";
}

std::string as_json() {
  return "{\n  \"version\": " + json_text(SLUICE_VERSION) +
         ",\n  \"backends\": " + json_list(backends::backends(), kToJson) +
         ",\n  \"gpus\": " + json_list(gpus(), object_of) +
         ",\n  \"providers\": " + json_list(backends::reports(), kToJson) +
         ",\n  \"variables\": " + json_list(base::variables(), kToJson) + "\n}\n";
}

std::string padded(std::string_view text, std::size_t width) {
  std::string column(text);
  column.resize(std::max(width, column.size()) + 2, ' ');
  return column;
}

/// Adds words to the last line, and continues in new, indented lines where that gets too long.
std::string wrapped(std::string lines, std::string_view words, std::size_t indent) {
  constexpr std::size_t kColumns = 100;
  std::size_t column = lines.size();
  while (!words.empty()) {
    const std::string_view word = words.substr(0, words.find(' '));
    words.remove_prefix(std::min(words.size(), word.size() + 1));
    if (column > indent && column + word.size() > kColumns) {
      lines.back() = '\n';  // instead of the space after the word before
      lines.append(indent, ' ');
      column = indent;
    }
    lines += word;
    lines += ' ';
    column += word.size() + 1;
  }
  lines.back() = '\n';
  return lines;
}

template <class Row>
std::string line_of_row(const Row& row) {
  const std::string& why_not = row.why_not;
  return wrapped("  " + padded(row.name, 12),
                 why_not.empty() ? "usable, level " + std::to_string(row.level) : "not usable here: " + why_not, 16);
}

std::string text_of(const base::Fact& value) {
  if (const auto* const fact = std::get_if<bool>(&value)) return *fact ? "yes" : "no";
  const auto* const text = std::get_if<std::string>(&value);
  return text == nullptr ? json_of(value) : *text;
}

/// Leaves out unknown facts.
std::string text_of(const Report::Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) {
    if (std::holds_alternative<std::monostate>(value)) continue;
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    text += (text.empty() ? "" : "; ") + words + ": " + text_of(value);
  }
  return text;
}

std::string lines_of(const Report& report) {
  std::string lines = line_of_row(report);
  if (!report.facts.empty()) lines += wrapped("    ", text_of(report.facts), 4);
  for (const Report::Facts& device : report.devices) lines += wrapped("    ", text_of(device), 6);
  return lines;
}

std::string lines_of_gpus() {
  std::string lines;
  for (const base::Facts& gpu : gpus()) lines += wrapped("  ", text_of(gpu), 4);
  for (const device::Driver* driver : device::drivers()) {
    if (!driver->why_not().empty())
      lines += wrapped("  " + padded(driver->name(), 12), "not usable here: " + driver->why_not(), 16);
  }
  return lines.empty() ? "  this build has no part for any\n" : lines;
}

std::string line_of(const base::Variable& variable, std::size_t width) {
  const std::string_view value = value_of(variable);
  std::string meaning = variable.meaning;
  if (value != variable.default_value)
    meaning += std::string(" [default: ") + (*variable.default_value == '\0' ? "unset" : variable.default_value) + "]";
  return wrapped("  " + padded(variable.name, width) + padded(value.empty() ? "(unset)" : value, 8), meaning,
                 width + 14);
}

std::string as_text() {
  std::string text = "Sluice " SLUICE_VERSION "\nBackends, best first\n";
  for (const backends::Backend& backend : backends::backends()) text += line_of_row(backend);
  text += "GPUs\n" + lines_of_gpus() + "Providers of networks, best first\n";
  for (const Report& report : backends::reports()) text += lines_of(report);
  text += "Variables\n";
  std::size_t width = 0;
  for (const base::Variable& variable : base::variables())
    width = std::max(width, std::string_view(variable.name).size());
  for (const base::Variable& variable : base::variables()) text += line_of(variable, width);
  return text;
}

}  // namespace

}  // namespace runtime

std::string info(bool json) { return json ? runtime::as_json() : runtime::as_text(); }

}  // namespace sluice
