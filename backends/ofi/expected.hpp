// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "base/fd.hpp"
#include "base/fork.hpp"

namespace sluice::backends::ofi {

/// Descriptors that libfabric will open at a time of its own. Without room for them it may hang, or fail and not say
/// so.
class Expected {
 public:
  Expected() noexcept = default;
  /// @throws std::runtime_error if there is no room for `more`
  explicit Expected(std::size_t more) : count_(more) {
    const std::size_t all = all_->fetch_add(more) + more;  // some of these are open already
    if (base::make_room_for_descriptors(all) || base::make_room_for_descriptors(more)) return;
    all_->fetch_sub(more);
    throw std::runtime_error(base::lack_of_descriptors(more));
  }
  Expected(Expected&& other) noexcept : count_(std::exchange(other.count_, 0)) {}
  Expected& operator=(Expected&& other) noexcept {
    std::swap(count_, other.count_);
    return *this;
  }
  ~Expected() { all_->fetch_sub(count_); }

 private:
  static inline base::OnePerProcess<std::atomic<std::size_t>> all_;  // of all ranks
  std::size_t count_ = 0;
};

}  // namespace sluice::backends::ofi
