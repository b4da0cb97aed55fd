// SPDX-License-Identifier: Apache-2.0
#include "apps/common/description.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <sstream>
#include <string_view>
#include <vector>

namespace apps {
namespace {

constexpr std::string_view kFiredBy = "; fired by the ";
constexpr const char* kNone = "none";

// Nothing for lines that are about no channel, such as a collective's first. A name may contain any text, even the
// separators of the parts behind it.
std::string_view without_name(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  if (line.starts_with("to rank ") || line.starts_with("from rank ")) return line;
  if (!line.starts_with('\'')) return {};
  for (const std::string_view after : {"' to rank ", "' from rank "}) {
    const auto end = line.rfind(after);
    if (end != std::string_view::npos) return line.substr(end);
  }
  return {};
}

// Removes the text before the next ": " from the front of `rest` and returns it; nothing if there is none.
std::string_view take_part(std::string_view& rest) {
  const auto end = rest.find(": ");
  if (end == std::string_view::npos) return {};
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(end + 2);
  return part;
}

void read_line(std::string_view line, Description& description) {
  std::string_view rest = without_name(line);
  if (take_part(rest).empty()) return;
  if (const auto backend = take_part(rest); !backend.empty()) description.backends.emplace(backend);
  if (const auto at = rest.rfind(kFiredBy); at != std::string_view::npos)
    description.fired_by.emplace(rest.substr(at + kFiredBy.size()));
}

void add_joined(std::string_view text, Names& names) {
  if (text == kNone) return;
  while (!text.empty()) {
    const auto end = std::min(text.find('+'), text.size());
    names.emplace(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

std::string joined(const Names& names) { return names.empty() ? kNone : fmt::format("{}", fmt::join(names, "+")); }

Description read_description(const std::string& text) {
  Description description;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) read_line(line, description);
  return description;
}

Description of_all_ranks(Description mine, HostCollectives& collectives, int ranks) {
  std::string text = joined(mine.backends) + ' ' + joined(mine.fired_by);  // no name has a space
  text.resize(static_cast<std::size_t>(collectives.max(static_cast<double>(text.size()))), ' ');
  const std::vector<std::size_t> bytes_of(static_cast<std::size_t>(ranks), text.size());
  collectives.gather(std::as_bytes(std::span(text)), bytes_of, [&](int, std::span<const std::byte> bytes) {
    std::istringstream words(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    std::string backends;
    std::string fired_by;
    words >> backends >> fired_by;
    add_joined(backends, mine.backends);
    add_joined(fired_by, mine.fired_by);
  });
  return mine;
}

}  // namespace apps
