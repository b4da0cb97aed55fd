// SPDX-License-Identifier: Apache-2.0
#include "backends/posting.hpp"

#include <algorithm>

namespace sluice::backends {

Posting::Posting(device::Watch& watch, int depth, std::size_t rails)
    : watch_(watch), shares_over_(static_cast<std::size_t>(depth)), posted_(rails) {}

AfterTurn Posting::post_rung() {
  const bool awaits = awaited();  // first: a ring that comes in between is posted, or awaited
  const std::uint64_t last = rung();
  const std::uint64_t before = posted_.front();
  bool busy = false;
  for (std::size_t rail = 0; rail < posted_.size(); ++rail) busy |= post_rung(rail, last);
  if (busy || (awaits && posted_.front() != before)) return AfterTurn::work;
  return awaits ? AfterTurn::words : AfterTurn::nothing;
}

bool Posting::post_rung(std::size_t rail, std::uint64_t rung) {
  std::uint64_t& posted = posted_[rail];
  while (posted < rung) {
    const std::uint64_t epoch = posted + 1;
    const std::uint64_t allowed = last_allowed(rail, rung);
    if (epoch > allowed) return true;
    if (watch_.shut()) {
      if (!at_rest(rail)) return true;
      left_out(epoch);
      over(epoch);
      posted = epoch;
      continue;
    }
    const std::uint64_t last = cumulative() ? allowed : epoch;
    if (!post_traced(rail, last)) return true;
    while (++posted < last) over(posted);
  }
  return false;
}

bool Posting::post_traced(std::size_t rail, std::uint64_t epoch) {
  if (!base::trace::on()) [[likely]]
    return post_share(rail, epoch);
  using base::trace::Arrow;
  const bool puts = watch_.traced.sends;
  base::trace::Span slice(puts ? "post" : "post credit", watch_.traced, epoch, 0, puts ? Arrow::passes : Arrow::none,
                          watch_.traced.engine);
  const bool posted = post_share(rail, epoch);
  if (!posted) slice.forget();
  return posted;
}

std::uint64_t Posting::last_allowed(std::size_t rail, std::uint64_t rung) const noexcept {
  // With nothing under way, epochs that need not be posted complete at once. Further ahead, an epoch would be taken for
  // an earlier one where its number has the fewest bits (ofi/manner.hpp).
  constexpr std::uint64_t kMostAhead = 1000;
  if (cumulative() && posted_.size() == 1 && posted_[rail] == done_) return std::min(rung, done_ + kMostAhead);
  return std::min<std::uint64_t>(rung, done_ + shares_over_.size());
}

std::uint64_t Posting::next_along() const noexcept {
  const std::uint64_t last = last_allowed(0, rung());
  return last > posted_.front() && !watch_.shut() ? last : 0;
}

void Posting::posted_along(std::uint64_t epoch) noexcept {
  while (posted_.front() < epoch) over(++posted_.front());
}

void Posting::over(std::uint64_t epoch) noexcept {
  ++shares_over_[epoch % shares_over_.size()];
  std::uint64_t done = done_;
  // Epochs may end in any order (test: Closing.any_order_works); the word only rises.
  while (shares_over_[(done + 1) % shares_over_.size()] == posted_.size()) {
    ++done;
    shares_over_[done % shares_over_.size()] = 0;
  }
  if (done == done_) return;
  done_ = done;
  base::raise(watch_.done, done, watch_.done_parking);
}

}  // namespace sluice::backends
