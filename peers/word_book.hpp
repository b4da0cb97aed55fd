// SPDX-License-Identifier: Apache-2.0
// The words that one peer writes and we wait for. Signals and credits of one peer stand side by side, so that a rank
// that waits for both finds them in one line; where its threads sleep for them has a line of its own. Words that are
// raised many times between two looks stand alone: who polls a neighbour would slow each raise
// (sluice-bench rate: 38 against 50 million a second).
#pragma once

#include <memory>
#include <vector>

#include "backends/transport.hpp"

namespace sluice::runtime {

enum class Standing : std::uint8_t { together, alone };

class WordBook {
 public:
  /// A word of value 0. @throws as device::allocate.
  backends::Signal take(Standing standing);
  /// No peer writes it any more.
  void give_back(const backends::Signal& word);

 private:
  struct Page {
    device::Allocation memory;
    Standing standing;
    std::vector<bool> used;
  };
  std::vector<Page> pages_;
};

}  // namespace sluice::runtime
