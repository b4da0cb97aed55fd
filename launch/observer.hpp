// SPDX-License-Identifier: Apache-2.0
// How sluice-run observes the waits of its ranks, and when it prints the table of them.
#pragma once

#include "base/words.hpp"
#include "launch/child.hpp"

#include <sluice/types.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace sluice::runtime {

class Observer {
 public:
  /// @param warn   SLUICE_WARN: how long a wait lasts when the table is printed; 0: it is not printed for that
  /// @param quiet  prints nothing (SLUICE_LOG=error)
  Observer(std::chrono::nanoseconds warn, bool quiet) : warn_(warn), quiet_(quiet) {}

  /// @param child  outlives this; it has the ranks `first`, `first` + 1, ...
  void add(const Child& child, Rank first, int ranks) { watched_.push_back({&child, first, ranks}); }

  /// When to call `look` next.
  base::Clock::time_point next() const noexcept { return next_look_; }
  /// Prints the table if a wait has lasted for SLUICE_WARN, and again each time that this passes.
  void look();
  /// Prints the table if there are waits worth it: a rank has failed, or the job is to end.
  void print();
  /// The answer to `sluice-run --status`: all waits that are noted.
  std::string status() const;

 private:
  struct Watched {
    const Child* child;
    Rank first;
    int ranks;
  };

  std::string table(base::Clock::duration least) const;
  /// A wait that has lasted for less says nothing.
  base::Clock::duration worth() const noexcept;

  base::Clock::duration warn_;
  bool quiet_;
  std::vector<Watched> watched_;
  base::Clock::time_point next_look_{};
  base::Clock::time_point next_table_{};
};

}  // namespace sluice::runtime
