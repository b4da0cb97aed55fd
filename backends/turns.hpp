// SPDX-License-Identifier: Apache-2.0
// The lock of a window whose atomics are those of targets alone: its holder changes numbers by ordinary instructions.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/words.hpp"
#include "device/gpu.hpp"

namespace sluice::backends {

/// Gives the atomics of a window to one rank after another. The word is 0, or that of the rank whose turn it is.
class Turns {
 public:
  /// There is no lock: atomics are instructions.
  Turns() noexcept = default;
  /// `rank`: this one's, in the job.
  Turns(base::Word& word, std::int32_t rank) noexcept : word_(&word.value), mine_(of(rank)) {}

  bool exist() const noexcept { return word_ != nullptr; }
  /// Calls `work()` while no other rank changes the window. False: it was not called, since the watch has failed, or it
  /// was not this rank's turn within `limit`. The watch fails when the stream of the lane has waited for too long, or
  /// ends.
  template <class Work>
  bool take(device::Lane lane, device::Watch& watch, Timeout limit, Work work) const noexcept {
    if (!try_take() && !await(lane, watch, limit)) return false;
    const bool good = !watch.failed();  // looked at in the turn: the owner may have ended the turns of this rank
    if (good) work();
    std::uint64_t mine = mine_;
    word_->compare_exchange_strong(mine, 0);  // the owner may have given the turn to another rank
    return good;
  }
  /// Ends the turn of a rank that has died, if it was its turn: what it has not changed stays as it is.
  static void end_that_of(base::Word& word, std::int32_t rank) noexcept {
    std::uint64_t dead = of(rank);
    word.value.compare_exchange_strong(dead, 0);
  }

 private:
  static std::uint64_t of(std::int32_t rank) noexcept { return static_cast<std::uint64_t>(rank) + 1; }
  bool try_take() const noexcept {
    std::uint64_t nobody = 0;
    return word_->compare_exchange_strong(nobody, mine_, std::memory_order_acquire, std::memory_order_relaxed);
  }
  [[gnu::noinline]] bool await(device::Lane lane, device::Watch& watch, Timeout limit) const noexcept;

  std::atomic<std::uint64_t>* word_ = nullptr;
  std::uint64_t mine_ = 0;
};

}  // namespace sluice::backends
