// SPDX-License-Identifier: Apache-2.0
// The words that one peer writes and we wait for. Signals and credits of one peer stand side by side, so that a rank
// that waits for both finds them in one line; where its threads sleep for them has a line of its own.
#pragma once

#include <memory>
#include <vector>

#include "backends/transport.hpp"

namespace sluice::runtime {

class WordBook {
 public:
  /// A word of value 0. @throws as device::allocate.
  backends::Signal take();
  /// No peer writes it any more.
  void give_back(const backends::Signal& word);

 private:
  struct Page {
    device::Allocation memory;
    std::vector<bool> used;
  };
  std::vector<Page> pages_;
};

}  // namespace sluice::runtime
