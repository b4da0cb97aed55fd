// SPDX-License-Identifier: Apache-2.0
// The short ways of an access (elements that follow each other, of one predefined type, in memory that this process
// maps), of a flush, and of locks whose words are mapped. They make the checks of the long ways, which all others go
// (accesses.hpp, epochs.hpp), and call less.
#pragma once

#include "base/copy.hpp"
#include "rma/mpi/changes.hpp"
#include "rma/mpi/rma_window.hpp"
#include "rma/mpi/types.hpp"
#include "rma/mpi/windows.hpp"

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::mpi_rma {

/// Elements at a rank, as an access names them.
struct Elements {
  MPI_Count count;
  MPI_Datatype type;
  int rank;
  MPI_Aint displacement;
};

struct Direct {
  std::byte* memory = nullptr;  ///< null: the access has to go the long way
  std::size_t bytes = 0;
  std::uint64_t* turn = nullptr;  ///< of an accumulate
  int self = 0;                   ///< this rank
};

/// `size`: bytes of an element; 0: it is not known. `in_turn`: for an accumulate.
[[gnu::always_inline]] inline Direct direct(MPI_Win handle, const Elements& there, std::size_t size, bool in_turn) {
  RmaWindow* const window = last_window(handle);
  if (window == nullptr || size == 0 || there.rank < 0 || there.count <= 0 || there.displacement < 0) return {};
  if (window->mutex.needed()) return {};
  Areas::Mapped* const area = window->areas->mapped_last(there.rank);
  if (area == nullptr || !window->epochs->permits(there.rank)) return {};
  std::int64_t bytes = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  if (__builtin_mul_overflow(std::int64_t{there.count}, static_cast<std::int64_t>(size), &bytes) ||
      __builtin_mul_overflow(std::int64_t{there.displacement}, area->unit, &begin) ||
      __builtin_add_overflow(begin, bytes, &end) || end > area->bytes)
    return {};
  Direct found{area->memory + begin, static_cast<std::size_t>(bytes)};
  if (in_turn) {
    const auto first = static_cast<std::uint64_t>(begin);
    const auto last = static_cast<std::uint64_t>(end - 1);
    if (area->turns == nullptr || first / Turns::kBlock != last / Turns::kBlock) return {};
    found.turn = &area->turns[Turns::word_of(first)];
    found.self = window->rank;
  }
  area->used = true;
  return found;
}

[[gnu::always_inline]] inline void copy(void* to, const void* from, std::size_t bytes) {
  base::copy_bytes(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
}

// True if it was done.

[[gnu::always_inline]] inline bool put_directly(MPI_Win window, const void* from, MPI_Count count, MPI_Datatype type,
                                                const Elements& there) {
  if (type != there.type || count != there.count) return false;
  const Direct found = direct(window, there, known_size(type), false);
  if (found.memory == nullptr) return false;
  copy(found.memory, from, found.bytes);
  return true;
}

[[gnu::always_inline]] inline bool get_directly(MPI_Win window, void* to, MPI_Count count, MPI_Datatype type,
                                                const Elements& there) {
  if (type != there.type || count != there.count) return false;
  const Direct found = direct(window, there, known_size(type), false);
  if (found.memory == nullptr) return false;
  copy(to, found.memory, found.bytes);
  return true;
}

/// False: the wait for the turn may last.
inline bool take_turn(const Direct& found) noexcept {
  return Turns::try_take(*found.turn, found.self) || Turns::take_soon(*found.turn, found.self);
}

/// An accumulate whose operands, and result if there is one, are as many elements of the same type.
[[gnu::always_inline]] inline bool change_directly(MPI_Win window, const void* operands, void* result,
                                                   const Elements& there, MPI_Op op) {
  const KnownChange* const known = known_change(op, there.type);
  if (known == nullptr) return false;
  const Direct found = direct(window, there, known->size, true);
  if (found.memory == nullptr || !take_turn(found)) return false;
  known->change(found.memory, static_cast<const std::byte*>(operands), static_cast<std::byte*>(result), found.bytes);
  Turns::give_back(*found.turn);
  return true;
}

[[gnu::always_inline]] inline bool compare_and_swap_directly(MPI_Win window, const void* desired, const void* expected,
                                                             void* result, const Elements& there) {
  const KnownChange* const known = known_change(MPI_BAND, there.type);  // only bits are compared
  if (known == nullptr) return false;
  const Direct found = direct(window, there, known->size, true);
  if (found.memory == nullptr || !take_turn(found)) return false;
  switch (known->size) {
    case 8: swap_if_equal(found.memory, desired, expected, result, 8); break;
    case 4: swap_if_equal(found.memory, desired, expected, result, 4); break;
    default: swap_if_equal(found.memory, desired, expected, result, known->size);
  }
  Turns::give_back(*found.turn);
  return true;
}

/// Earlier stores to mapped memory are visible before later ones.
inline void order_stores() noexcept { std::atomic_thread_fence(std::memory_order_release); }

/// True if nothing is left to wait for at the rank.
inline bool flush_directly(MPI_Win handle, int rank) {
  RmaWindow* const window = last_window(handle);
  if (window == nullptr || window->mutex.needed() || rank < 0 || rank >= window->size) return false;
  order_stores();
  return window->epochs->locks(rank) && window->areas->drained();
}

/// True if nothing is left to wait for at any rank.
inline bool flush_all_directly(MPI_Win handle) {
  RmaWindow* const window = last_window(handle);
  order_stores();
  return window != nullptr && !window->mutex.needed() && window->epochs->locks(-1) && window->areas->drained();
}

/// The long way meets the failure of a peer again, and reports it.
inline bool try_directly(auto work) noexcept {
  try {
    return work();
  } catch (...) {
    return false;
  }
}

inline bool lock_directly(MPI_Win handle, int type, int rank, int assertion) {
  RmaWindow* const window = last_window(handle);
  const bool known = type == MPI_LOCK_SHARED || type == MPI_LOCK_EXCLUSIVE;
  if (window == nullptr || window->mutex.needed() || !known || rank < 0 || rank >= window->size) return false;
  return try_directly([&] { return window->epochs->lock_now(type, rank, assertion); });
}

inline bool unlock_directly(MPI_Win handle, int rank) {
  RmaWindow* const window = last_window(handle);
  if (window == nullptr || window->mutex.needed() || rank < 0 || rank >= window->size) return false;
  return try_directly([&] { return window->epochs->unlock_now(rank); });
}

}  // namespace sluice::mpi_rma
