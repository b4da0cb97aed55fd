// SPDX-License-Identifier: Apache-2.0
#include "segments/intervals.hpp"

#include <algorithm>
#include <iterator>

namespace sluice::segments {

bool IntervalSet::contains(const Range& range) const {
  if (range.count == 0) return true;
  const auto behind = intervals_.upper_bound(range.offset);
  return behind != intervals_.begin() && std::prev(behind)->second >= range.end();
}

bool IntervalSet::intersects(const Range& range) const {
  if (range.count == 0) return false;
  const auto behind = intervals_.lower_bound(range.end());
  return behind != intervals_.begin() && std::prev(behind)->second > range.offset;
}

void IntervalSet::add(const Range& range) {
  if (range.count == 0) return;
  std::size_t begin = range.offset;
  std::size_t end = range.end();
  auto next = intervals_.upper_bound(begin);
  // Intervals that adjoin are merged, too.
  if (next != intervals_.begin() && std::prev(next)->second >= begin) --next;
  while (next != intervals_.end() && next->first <= end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    next = intervals_.erase(next);
  }
  intervals_.emplace_hint(next, begin, end);
}

void IntervalSet::remove(const Range& range) {
  if (range.count == 0) return;
  auto next = intervals_.lower_bound(range.offset);
  if (next != intervals_.begin() && std::prev(next)->second > range.offset) --next;
  while (next != intervals_.end() && next->first < range.end()) {
    const auto [begin, end] = *next;
    next = intervals_.erase(next);
    if (begin < range.offset) intervals_.emplace_hint(next, begin, range.offset);
    if (end > range.end()) next = intervals_.emplace_hint(next, range.end(), end);
  }
}

}  // namespace sluice::segments
