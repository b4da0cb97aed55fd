// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace apps {

/// A value as a CSV field: nothing for null, and quotes around what has a comma.
inline std::string csv_field(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "";
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  return text.find(',') == std::string::npos ? text : '"' + text + '"';
}

}  // namespace apps
