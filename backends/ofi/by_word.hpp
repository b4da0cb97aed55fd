// SPDX-License-Identifier: Apache-2.0
// The receiver learns of a put by a word: the sender writes the signal itself, after the data (Notice::word).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/transport.hpp"

namespace sluice::backends::ofi {

/// The signals of a rank that its peers write. A write wakes no thread, so the engine looks at them.
class WrittenWords {
 public:
  void add(std::span<const Signal> signals);
  void remove(std::span<const Signal> signals);
  bool empty() const noexcept { return words_.empty(); }
  /// Wakes the waiters of each signal that has changed since the last call.
  void look() noexcept;

 private:
  struct Word {
    const Signal* signal = nullptr;
    std::uint64_t seen = 0;
  };

  std::vector<Word> words_;
};

}  // namespace sluice::backends::ofi
