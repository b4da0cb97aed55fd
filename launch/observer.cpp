// SPDX-License-Identifier: Apache-2.0
#include "launch/observer.hpp"

#include "base/log.hpp"
#include "base/wait_graph.hpp"

#include <algorithm>

namespace sluice::runtime {

using base::Clock;

std::string Observer::table(Clock::duration least) const {
  std::vector<base::WaitRecord> waits;
  std::vector<int> seen;
  for (const Watched& one : watched_) {
    if (!one.child->running()) continue;
    for (int i = 0; i < one.ranks; ++i) seen.push_back(one.first + i);
    for (base::WaitRecord& wait : base::waits_in(one.child->waits())) {
      if (wait.rank < 0 && one.ranks == 1) wait.rank = one.first;
      waits.push_back(wait);
    }
  }
  return base::wait_table(std::move(waits), seen, Clock::now(), least);
}

Clock::duration Observer::worth() const noexcept {
  constexpr Clock::duration kMost = std::chrono::seconds(1);
  return warn_ > Clock::duration::zero() ? std::min(warn_ / 2, kMost) : kMost;
}

void Observer::look() {
  constexpr Clock::duration kOftenest = std::chrono::milliseconds(10);
  constexpr Clock::duration kRarest = std::chrono::seconds(2);
  const auto now = Clock::now();
  if (now < next_look_) return;
  if (warn_ <= Clock::duration::zero() || quiet_) {
    next_look_ = Clock::time_point::max();
    return;
  }
  next_look_ = now + std::clamp(warn_ / 8, kOftenest, kRarest);
  if (now < next_table_ || table(warn_).empty()) return;
  next_table_ = now + warn_;
  base::write_line("sluice-run: " + table(worth()));
}

void Observer::print() {
  const std::string waits = quiet_ ? std::string() : table(worth());
  if (waits.empty()) return;
  next_table_ = Clock::now() + warn_;
  base::write_line("sluice-run: " + waits);
}

std::string Observer::status() const {
  const std::string waits = table(Clock::duration::zero());
  return (waits.empty() ? "no rank waits" : waits) + "\n";
}

}  // namespace sluice::runtime
