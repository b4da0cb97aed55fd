// SPDX-License-Identifier: Apache-2.0
// A dissemination barrier: in round k each rank signals the one 2^k after it, and waits for the one 2^k before it.
// After the last round it has a signal from each rank, directly or through others.
#pragma once

#include <sluice/types.hpp>

#include <bit>
#include <cstdint>

namespace sluice::rma {

/// One rank's part. How it signals and waits, the caller knows.
class Barrier {
 public:
  Barrier(Rank rank, int size) : rank_(rank), size_(size) {}

  int rounds() const noexcept { return static_cast<int>(std::bit_width(static_cast<unsigned>(size_ - 1))); }
  /// The rank that this one signals in a round, and the one that it waits for.
  Rank to(int round) const noexcept { return static_cast<Rank>((rank_ + distance(round)) % size_); }
  Rank from(int round) const noexcept { return static_cast<Rank>((rank_ - distance(round) + size_) % size_); }

  /// Returns when all ranks have called it as often. If `signal(round)` or `await(round)` throws, it may be called
  /// again, and goes on where it was.
  void pass(auto signal, auto await) {
    for (; round_ < rounds(); ++round_, signalled_ = false) {
      if (!signalled_) signal(round_);
      signalled_ = true;
      await(round_);
    }
    round_ = 0;
  }

 private:
  static std::int64_t distance(int round) noexcept { return std::int64_t{1} << round; }

  Rank rank_;
  int size_;
  int round_ = 0;  // of a barrier that has not ended
  bool signalled_ = false;
};

}  // namespace sluice::rma
