// SPDX-License-Identifier: Apache-2.0
#include "rma/locks.hpp"

#include <array>
#include <string>

namespace sluice::rma {

namespace {

constexpr Rank kMaster = 0;

}  // namespace

/// Returns when `free(word)`, which no one wakes it for.
template <class Free>
void Locks::await(Rank rank, std::size_t word, Free free, base::Limit& limit) {
  const std::array<Rank, 1> owner{rank};
  Patience patience(group_, peers_, patrol_, limit, owner, "the lock is held by others");
  do patience.rest();
  while (!free(peers_.add(rank, word, 0, limit)));
}

void Locks::lock(Rank rank, Kind kind, base::Limit& limit) {
  peers_.check_rank(rank);
  if (all_) throw group_.error(Code::misuse, "lock inside an epoch of lock_all", rank);
  if (held_.contains(rank)) throw group_.error(Code::misuse, "locked already", rank);
  if (kind == Kind::shared) {
    share(rank, limit);
  } else {
    exclude(rank, limit);
  }
  held_[rank] = kind;
}

/// Stays counted while it waits: exclusive locks step back, so it gets its turn.
void Locks::share(Rank rank, base::Limit& limit) {
  peers_.words(rank, limit);
  try {
    const auto free = [](std::uint64_t lock) { return exclusive_of(lock) == 0; };
    if (!free(peers_.add(rank, at::kLock, kShared, limit))) await(rank, at::kLock, free, limit);
  } catch (...) {
    peers_.add_later(rank, at::kLock, at::kMinusShared, limit);
    throw;
  }
}

/// Stays counted at rank 0 while it waits: `lock_all` steps back.
void Locks::exclude(Rank rank, base::Limit& limit) {
  peers_.words(rank, limit);
  peers_.words(kMaster, limit);
  try {
    const auto free = [](std::uint64_t locks) { return shared_of(locks) == 0; };
    if (!free(peers_.add(kMaster, at::kAllLocks, kExclusive, limit))) await(kMaster, at::kAllLocks, free, limit);
    exclude_only(rank, limit);
  } catch (...) {
    peers_.add_later(kMaster, at::kAllLocks, at::kMinusExclusive, limit);
    throw;
  }
}

void Locks::exclude_only(Rank rank, base::Limit& limit) {
  const auto try_once = [&] {
    try {
      if (peers_.add(rank, at::kLock, kExclusive, limit) == 0) return true;
    } catch (...) {
      peers_.add_later(rank, at::kLock, at::kMinusExclusive, limit);
      throw;
    }
    peers_.add_later(rank, at::kLock, at::kMinusExclusive, limit);
    return false;
  };
  while (!try_once())
    await(
        rank, at::kLock, [](std::uint64_t lock) { return lock == 0; }, limit);
}

void Locks::unlock(Rank rank, base::Limit& limit) {
  const auto held = held_.find(rank);
  if (held == held_.end()) throw group_.error(Code::misuse, "unlock of what is not locked", rank);
  peers_.flush(rank, limit);
  const bool shared = held->second == Kind::shared;
  peers_.add_later(rank, at::kLock, shared ? at::kMinusShared : at::kMinusExclusive, limit);
  if (!shared) peers_.add_later(kMaster, at::kAllLocks, at::kMinusExclusive, limit);
  held_.erase(held);
}

/// Steps back while it waits: exclusive locks do not.
void Locks::lock_all(base::Limit& limit) {
  if (any()) throw group_.error(Code::misuse, "lock_all inside an epoch of lock or lock_all");
  peers_.words(kMaster, limit);
  const auto free = [](std::uint64_t locks) { return exclusive_of(locks) == 0; };
  const auto try_once = [&] {
    try {
      if (free(peers_.add(kMaster, at::kAllLocks, kShared, limit))) return true;
    } catch (...) {
      peers_.add_later(kMaster, at::kAllLocks, at::kMinusShared, limit);
      throw;
    }
    peers_.add_later(kMaster, at::kAllLocks, at::kMinusShared, limit);
    return false;
  };
  while (!try_once()) await(kMaster, at::kAllLocks, free, limit);
  all_ = true;
}

void Locks::unlock_all(base::Limit& limit) {
  if (!all_) throw group_.error(Code::misuse, "unlock_all without lock_all");
  peers_.flush_all(limit);
  peers_.add_later(kMaster, at::kAllLocks, at::kMinusShared, limit);
  all_ = false;
}

}  // namespace sluice::rma
