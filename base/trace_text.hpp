// SPDX-License-Identifier: Apache-2.0
// The lines of a timeline: events and the names of tracks as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/timeline_file.hpp"
#include "base/trace.hpp"

namespace sluice::base::trace {

/// A slice; or a mark, which has no end; or one more arrow of a slice that has an arrow already.
struct Event {
  Slice slice;                // without a name: the arrow alone
  const char* why = nullptr;  // set for a mark
};

/// The rank and the name of each track.
using Row = std::pair<int, std::string>;
using Rows = std::map<Track, Row>;

/// Returns lines that name these tracks, and their ranks but for those in `ranks_named`, to which they are added.
std::vector<std::string> lines_of(const Rows& rows, std::set<int>& ranks_named);

/// Returns the lines of an event. @param began  the origin of times
std::string line_of(const Event& event, const Rows& rows, Nanoseconds began);

/// Returns lines in the form that a Part has.
std::string joined(const std::vector<std::string>& lines);

}  // namespace sluice::base::trace
