// SPDX-License-Identifier: Apache-2.0
#include "apps/common/description.hpp"

#include <string_view>

namespace apps {
namespace {

constexpr std::string_view kFiredBy = "; fired by the ";

// A name may hold anything, also what separates the parts behind it.
std::string_view without_name(std::string_view line) {
  if (!line.starts_with('\'')) return line;
  for (const std::string_view after : {"' to rank ", "' from rank "}) {
    const auto end = line.rfind(after);
    if (end != std::string_view::npos) return line.substr(end);
  }
  return line;
}

// Takes what is before the next ": " off the front of `rest`; nothing if there is none.
std::string_view take_part(std::string_view& rest) {
  const auto end = rest.find(": ");
  if (end == std::string_view::npos) return {};
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(end + 2);
  return part;
}

}  // namespace

Description read_description(const std::string& text) {
  std::string_view rest = without_name(std::string_view(text).substr(0, text.find('\n')));
  Description description;
  if (take_part(rest).empty()) return description;
  if (const auto backend = take_part(rest); !backend.empty()) description.backend = backend;
  if (const auto at = rest.rfind(kFiredBy); at != std::string_view::npos)
    description.fired_by = rest.substr(at + kFiredBy.size());
  return description;
}

}  // namespace apps
