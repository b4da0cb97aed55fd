// SPDX-License-Identifier: Apache-2.0
// Locks, by one word at rank 0 and one at each rank. Both count exclusive and shared locks. An exclusive lock is first
// counted at rank 0, which keeps `lock_all` out however many ranks are locked.
#pragma once

#include <sluice/collective_window.hpp>

#include <unordered_map>

#include "base/limit.hpp"
#include "rma/group.hpp"
#include "rma/patience.hpp"
#include "rma/peers.hpp"

namespace sluice::rma {

class Locks {
 public:
  using Kind = CollectiveWindow::Lock;

  Locks(const Group& group, Peers& peers, Patrol& patrol) : group_(group), peers_(peers), patrol_(patrol) {}

  bool any() const noexcept { return all_ || !held_.empty(); }
  bool all() const noexcept { return all_; }

  void lock(Rank rank, Kind kind, base::Limit& limit);
  void unlock(Rank rank, base::Limit& limit);
  void lock_all(base::Limit& limit);
  void unlock_all(base::Limit& limit);

 private:
  void share(Rank rank, base::Limit& limit);
  void exclude(Rank rank, base::Limit& limit);
  void exclude_only(Rank rank, base::Limit& limit);
  template <class Free>
  void await(Rank rank, std::size_t word, Free free, base::Limit& limit);

  const Group& group_;
  Peers& peers_;
  Patrol& patrol_;
  std::unordered_map<Rank, Kind> held_;
  bool all_ = false;
};

}  // namespace sluice::rma
