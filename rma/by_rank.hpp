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
    auto& [last, value] = lately_[static_cast<std::size_t>(rank) % lately_.size()];
    if (last == rank && value != nullptr) return value;
    const auto found = all_.find(rank);
    if (found == all_.end()) return nullptr;
    last = rank;
    return value = &found->second;
  }
  /// Makes one if there is none.
  Value& operator[](Rank rank) {
    Value* const known = find(rank);
    return known == nullptr ? all_[rank] : *known;
  }
  void set(Rank rank, Value value) { all_.insert_or_assign(rank, std::move(value)); }

  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }

 private:
  std::unordered_map<Rank, Value> all_;
  std::array<std::pair<Rank, Value*>, 4> lately_{};
};

}  // namespace sluice::rma
