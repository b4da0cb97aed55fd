// SPDX-License-Identifier: Apache-2.0
// sluice::info: what sluice-info prints, for people or as JSON.
#include "backends/transport.hpp"
#include "base/env.hpp"

#include <sluice/run.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace sluice {

namespace runtime {

namespace {

std::string quoted(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      json += escape;
    } else {
      json += c;
    }
  }
  return json + '"';
}

// Empty: there is none.
std::string quoted_or_null(std::string_view text) { return text.empty() ? "null" : quoted(text); }

std::string_view value_of(const base::Variable& variable) {
  const char* const set = std::getenv(variable.name);
  return set == nullptr ? variable.default_value : set;
}

std::string json_of(const backends::Backend& backend) {
  return "{\"name\": " + quoted(backend.name) + ", \"usable\": " + (backend.why_not.empty() ? "true" : "false") +
         ", \"why_not\": " + quoted(backend.why_not) + ", \"level\": " + std::to_string(backend.level) + "}";
}

std::string json_of(const base::Variable& variable) {
  return "{\"name\": " + quoted(variable.name) + ", \"kind\": " + quoted(base::name(variable.kind)) +
         ", \"default\": " + quoted_or_null(variable.default_value) +
         ", \"value\": " + quoted_or_null(value_of(variable)) + ", \"meaning\": " + quoted(variable.meaning) + "}";
}

template <class Range>
std::string json_list(const Range& items) {
  std::string json;
  for (const auto& item : items) json += (json.empty() ? "\n    " : ",\n    ") + json_of(item);
  return "[" + json + "\n  ]";
}

std::string as_json() {
  return "{\n  \"version\": " + quoted(SLUICE_VERSION) + ",\n  \"backends\": " + json_list(backends::backends()) +
         ",\n  \"gpus\": [],\n  \"providers\": [],\n  \"variables\": " + json_list(base::variables()) + "\n}\n";
}

std::string padded(std::string_view text, std::size_t width) {
  std::string column(text);
  column.resize(std::max(width, column.size()) + 2, ' ');
  return column;
}

std::string line_of(const backends::Backend& backend) {
  const std::string& why_not = backend.why_not;
  return "  " + padded(backend.name, 12) +
         (why_not.empty() ? "usable, level " + std::to_string(backend.level) : "not usable here: " + why_not) + "\n";
}

std::string line_of(const base::Variable& variable, std::size_t width) {
  const std::string_view value = value_of(variable);
  std::string line =
      "  " + padded(variable.name, width) + padded(value.empty() ? "(unset)" : value, 8) + variable.meaning;
  if (value != variable.default_value) {
    line += std::string(" [default: ") + (*variable.default_value == '\0' ? "unset" : variable.default_value) + "]";
  }
  return line + "\n";
}

std::string as_text() {
  std::string text = "Sluice " SLUICE_VERSION "\nBackends, best first\n";
  for (const backends::Backend& backend : backends::backends()) text += line_of(backend);
  text += "GPUs\n  none\nProviders\n  none\nVariables\n";
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
