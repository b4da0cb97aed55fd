// SPDX-License-Identifier: Apache-2.0
#include "base/trace_text.hpp"

#include <array>
#include <cstddef>

#include "base/text.hpp"

namespace sluice::base::trace {
namespace {

std::string entry(const char* phase, int rank, Track track, Nanoseconds at, const std::string& rest) {
  return std::string("{\"ph\":\"") + phase + "\",\"pid\":" + std::to_string(rank) +
         ",\"tid\":" + std::to_string(track) + ",\"ts\":" + microseconds(at) + ",\"cat\":\"sluice\"" + rest + "}";
}

/// Viewers draw an arrow to or from the slice in which its point of time lies.
std::string arrow_line(const Slice& slice, int rank, Nanoseconds began) {
  static constexpr std::array<const char*, 4> kPhases = {"", "s", "t", "f"};
  const auto [kind, id] = slice.arrow;
  const std::string binding = kind == Arrow::begins ? "" : R"(,"bp":"e")";
  const Time at = kind == Arrow::ends ? slice.end : slice.begin;
  return entry(kPhases.at(static_cast<std::size_t>(kind)), rank, slice.track, at.time_since_epoch() - began,
               binding + R"(,"name":"message","id":"0x)" + hexadecimal(id) + '"');
}

std::string arguments(const Event& event) {
  const Slice& slice = event.slice;
  std::string text;
  if (*slice.channel != '\0') text += ",\"channel\":" + json_text(slice.channel);
  if (slice.epoch != 0) text += ",\"epoch\":" + std::to_string(slice.epoch);
  if (slice.bytes != 0) text += ",\"bytes\":" + std::to_string(slice.bytes);
  if (event.why != nullptr) text += ",\"why\":" + json_text(event.why);
  return text.empty() ? "" : ",\"args\":{" + text.substr(1) + "}";
}

std::string naming(const char* what, int rank, Track track, const std::string& value) {
  return std::string("{\"ph\":\"M\",\"name\":\"") + what + "\",\"pid\":" + std::to_string(rank) +
         ",\"tid\":" + std::to_string(track) + ",\"args\":{" + value + "}}";
}

}  // namespace

std::vector<std::string> lines_of(const Rows& rows, std::set<int>& ranks_named) {
  std::vector<std::string> lines;
  for (const auto& [track, row] : rows) {
    const auto& [rank, name] = row;
    if (ranks_named.insert(rank).second) {
      lines.push_back(naming("process_name", rank, 0, "\"name\":\"rank " + std::to_string(rank) + "\""));
      lines.push_back(naming("process_sort_index", rank, 0, "\"sort_index\":" + std::to_string(rank)));
    }
    lines.push_back(naming("thread_name", rank, track, "\"name\":" + json_text(name)));
  }
  return lines;
}

std::string line_of(const Event& event, const Rows& rows, Nanoseconds began) {
  const Slice& slice = event.slice;
  const auto row = rows.find(slice.track);
  const int rank = row == rows.end() ? 0 : row->second.first;
  if (slice.name == nullptr) return arrow_line(slice, rank, began);
  const Nanoseconds at = slice.begin.time_since_epoch() - began;
  const std::string what = ",\"name\":" + json_text(slice.name) + arguments(event);
  if (event.why != nullptr) return entry("i", rank, slice.track, at, ",\"s\":\"t\"" + what);
  const std::string duration = ",\"dur\":" + microseconds(slice.end - slice.begin);
  return entry("X", rank, slice.track, at, duration + what) +
         (slice.arrow.arrow == Arrow::none ? "" : ",\n" + arrow_line(slice, rank, began));
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : ",\n") + line;
  return text;
}

}  // namespace sluice::base::trace
