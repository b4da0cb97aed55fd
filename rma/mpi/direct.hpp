// SPDX-License-Identifier: Apache-2.0
// The short way of an access: elements that follow each other, of one predefined type, in memory that this process
// maps. It makes the same checks as the long way, which all others go (accesses.hpp), and calls less.
#pragma once

#include "rma/mpi/rma_window.hpp"
#include "rma/mpi/steps.hpp"
#include "rma/mpi/types.hpp"
#include "rma/mpi/windows.hpp"

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

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
  bool by_word = false;  ///< accumulates are atomics of the processor, if the memory is aligned
};

/// `size`: bytes of an element; 0: the type has no such.
inline Direct direct(MPI_Win handle, const Elements& there, std::size_t size) {
  RmaWindow* const window = find_window(handle);
  if (window == nullptr || size == 0 || there.count <= 0 || there.displacement < 0) return {};
  if (window->mutex.needed() || there.rank < 0 || there.rank >= window->size) return {};
  const Part& part = window->parts[static_cast<std::size_t>(there.rank)];
  std::int64_t bytes = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  if (__builtin_mul_overflow(std::int64_t{there.count}, static_cast<std::int64_t>(size), &bytes) ||
      __builtin_mul_overflow(std::int64_t{there.displacement}, part.unit, &begin) ||
      __builtin_add_overflow(begin, bytes, &end) || end > part.bytes)
    return {};
  std::byte* const memory = window->areas->mapped_last(there.rank);
  if (memory == nullptr || !window->epochs->permits(there.rank)) return {};
  return {memory + begin, static_cast<std::size_t>(bytes), window->by_word};
}

/// True if it was done.
inline bool put_directly(MPI_Win window, const void* from, MPI_Count count, MPI_Datatype type, const Elements& there) {
  if (type != there.type || count != there.count) return false;
  const Direct found = direct(window, there, size_of_predefined(type));
  if (found.memory == nullptr) return false;
  std::memcpy(found.memory, from, found.bytes);
  return true;
}

inline bool get_directly(MPI_Win window, void* to, MPI_Count count, MPI_Datatype type, const Elements& there) {
  if (type != there.type || count != there.count) return false;
  const Direct found = direct(window, there, size_of_predefined(type));
  if (found.memory == nullptr) return false;
  std::memcpy(to, found.memory, found.bytes);
  return true;
}

/// An accumulate whose operands, and result if there is one, are as many elements of the same type.
inline bool change_directly(MPI_Win window, const void* operands, void* result, const Elements& there, MPI_Op op) {
  const KnownChange& known = known_change(op, there.type);
  if (known.steps == nullptr) return false;
  const Direct found = direct(window, there, known.size);
  if (found.memory == nullptr || !found.by_word || reinterpret_cast<std::uintptr_t>(found.memory) % known.size != 0)
    return false;
  known.steps(found.memory, static_cast<const std::byte*>(operands), static_cast<std::byte*>(result), found.bytes);
  return true;
}

template <class T>
void compare_and_swap_at(std::byte* at, const void* desired, const void* expected, void* result) {
  T found;
  T wanted;
  std::memcpy(&found, expected, sizeof found);
  std::memcpy(&wanted, desired, sizeof wanted);
  std::atomic_ref(*reinterpret_cast<T*>(at)).compare_exchange_strong(found, wanted);
  std::memcpy(result, &found, sizeof found);
}

inline bool compare_and_swap_directly(MPI_Win window, const void* desired, const void* expected, void* result,
                                      const Elements& there) {
  const KnownChange& known = known_change(MPI_BAND, there.type);  // only bits are compared
  if (known.steps == nullptr) return false;
  const Direct found = direct(window, there, known.size);
  if (found.memory == nullptr || !found.by_word || reinterpret_cast<std::uintptr_t>(found.memory) % known.size != 0)
    return false;
  const auto change = known.size == 8   ? compare_and_swap_at<std::uint64_t>
                      : known.size == 4 ? compare_and_swap_at<std::uint32_t>
                      : known.size == 2 ? compare_and_swap_at<std::uint16_t>
                                        : compare_and_swap_at<std::uint8_t>;
  change(found.memory, desired, expected, result);
  return true;
}

/// True if nothing is left to wait for at the rank.
inline bool flush_directly(MPI_Win handle, int rank) {
  RmaWindow* const window = find_window(handle);
  if (window == nullptr || window->mutex.needed() || rank < 0 || rank >= window->size) return false;
  return window->epochs->locks(rank) && window->areas->drained();
}

/// True if nothing is left to wait for at any rank.
inline bool flush_all_directly(MPI_Win handle) {
  RmaWindow* const window = find_window(handle);
  return window != nullptr && !window->mutex.needed() && window->epochs->locks(-1) && window->areas->drained();
}

}  // namespace sluice::mpi_rma
