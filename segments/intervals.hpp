// SPDX-License-Identifier: Apache-2.0
// Sets of bytes, as intervals.
#pragma once

#include <cstddef>
#include <map>

namespace sluice::segments {

/// `count` bytes from `offset` on.
struct Range {
  std::size_t offset = 0;
  std::size_t count = 0;

  std::size_t end() const noexcept { return offset + count; }
  bool overlaps(const Range& other) const noexcept {
    return count != 0 && other.count != 0 && offset < other.end() && other.offset < end();
  }
};

/// A set of bytes. It keeps intervals that neither overlap nor adjoin, so its memory and the time of a call grow with
/// the number of these: the time of `contains` and `intersects` with its logarithm, that of the others also with the
/// number of intervals that they merge or cut.
class IntervalSet {
 public:
  /// All bytes of the range are in the set. An empty range always is.
  bool contains(const Range& range) const;
  /// Some byte of the range is in the set.
  bool intersects(const Range& range) const;
  void add(const Range& range);
  void remove(const Range& range);
  bool empty() const noexcept { return intervals_.empty(); }
  /// The number of intervals.
  std::size_t intervals() const noexcept { return intervals_.size(); }
  /// The first interval, of a set that is not empty.
  Range first() const noexcept {
    return {intervals_.begin()->first, intervals_.begin()->second - intervals_.begin()->first};
  }

 private:
  std::map<std::size_t, std::size_t> intervals_;  // their ends, by their beginnings
};

}  // namespace sluice::segments
