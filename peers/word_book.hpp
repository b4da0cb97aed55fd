// SPDX-License-Identifier: Apache-2.0
// The words in our memory that one peer writes. Signals and credits of one peer stand side by side, so that a rank that
// waits for both finds them in one cache line; the words that its threads sleep on have a line of their own. Words that
// are raised many times between two polls stand alone: polling a neighbour would slow each raise (sluice-bench rate:
// 38 against 50 million a second).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "backends/transport.hpp"

namespace sluice::runtime {

enum class Standing : std::uint8_t { together, alone };

class WordBook {
 public:
  /// A word of value 0. Threads that wait for words of several peers sleep in a place that the pages of all books share
  /// (base::Parking::common). @throws as device::allocate.
  backends::Signal take(Standing standing);
  /// Call once no peer writes the word any more.
  void give_back(const backends::Signal& word);

 private:
  struct Page {
    device::Allocation memory;
    Standing standing;
    std::vector<bool> used;
    std::size_t left;
  };
  using Pages = std::map<const std::byte*, Page>;  // by address
  Page& page_with_room(Standing standing);

  Pages pages_;
  std::map<Standing, std::set<Page*>> with_room_;
};

}  // namespace sluice::runtime
