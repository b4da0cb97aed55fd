// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace apps {

/// A value as a CSV field: nothing for null, and quotes around a text that has a comma.
inline std::string csv_field(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  const auto text = value.get<std::string>();
  return text.find(',') == std::string::npos ? text : '"' + text + '"';
}

}  // namespace apps
