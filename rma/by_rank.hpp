// SPDX-License-Identifier: Apache-2.0
// A table by rank.
#pragma once

#include <sluice/types.hpp>

#include <array>
#include <cstddef>
#include <unordered_map>
#include <utility>

namespace sluice::rma {

/// A value for each of some ranks, which stays where it is. The last ones are found without a hash, whose division
/// takes longer than an atomic.
template <class Value>
class ByRank {
 public:
  ByRank() = default;
  ByRank(const ByRank&) = delete;
  ByRank& operator=(const ByRank&) = delete;

  /// Null: the rank has none.
  Value* find(Rank rank) {
    Value* const known = lately(rank);
    return known != nullptr ? known : look_up(rank);
  }
  /// Null: it was not found lately.
  Value* lately(Rank rank) const {
    const auto& [last, value] = lately_[place_of(rank)];
    return last == rank ? value : nullptr;
  }
  /// Makes one if there is none.
  Value& operator[](Rank rank) {
    Value* const known = find(rank);
    return known != nullptr ? *known : make(rank);
  }
  void set(Rank rank, Value value) { all_.insert_or_assign(rank, std::move(value)); }

  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }

 private:
  static std::size_t place_of(Rank rank) { return static_cast<std::size_t>(rank) % kLately; }
  [[gnu::noinline]] Value* look_up(Rank rank) {
    const auto found = all_.find(rank);
    if (found == all_.end()) return nullptr;
    lately_[place_of(rank)] = {rank, &found->second};
    return &found->second;
  }
  [[gnu::noinline]] Value& make(Rank rank) { return all_[rank]; }

  static constexpr std::size_t kLately = 4;
  std::unordered_map<Rank, Value> all_;
  std::array<std::pair<Rank, Value*>, kLately> lately_{};
};

}  // namespace sluice::rma
