// SPDX-License-Identifier: Apache-2.0
// Turns of accumulates: one rank at a time changes the elements of a block, by ordinary instructions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/words.hpp"

namespace sluice::mpi_rma {

/// The words of a rank that give turns in its memory. A word names the rank that changes elements of a block, by its
/// rank in the window and 1 more; 0: no rank does. A rank that dies in its turn keeps it. A rank whose write did not
/// complete in its turn, by SLUICE_TIMEOUT, breaks the turn for all: the late bytes may overwrite any later change.
///
/// A turn begins with an instruction that locks, and ends with a plain store. So an accumulate finds what all earlier
/// ones of its rank have stored at the peers, but a later load, such as that of a get, may pass the end of a turn. MPI
/// leaves open what a get reads that no synchronisation orders behind an accumulate (MPI 4.0, 12.7).
struct Turns {
  /// Bytes of the memory with one turn. An element is of the block in which it begins.
  static constexpr std::uint64_t kBlock = 65536;
  static constexpr std::size_t kWords = 64;
  static constexpr std::uint64_t kBroken = ~std::uint64_t{0};

  /// Which of the words gives turns in the block at an offset. Each has a cache line of its own.
  static constexpr std::size_t word_of(std::uint64_t offset) { return offset / kBlock % kStripes * kLine; }

  static std::uint64_t name_of(int rank) noexcept { return static_cast<std::uint64_t>(rank) + 1; }
  static int rank_of(std::uint64_t name) noexcept { return static_cast<int>(name - 1); }

  // On a word that this process maps.
  static bool try_take(std::uint64_t& word, int self) noexcept {
    std::uint64_t nobody = 0;
    return std::atomic_ref(word).compare_exchange_strong(nobody, name_of(self), std::memory_order_acquire,
                                                         std::memory_order_relaxed);
  }
  /// Tries again for about a microsecond (on x86; elsewhere a pause is shorter): most turns are shorter. Reads the word
  /// before it tries, so that waiting ranks leave its line to the holder.
  [[gnu::noinline]] static bool take_soon(std::uint64_t& word, int self) noexcept {
    for (int i = 0; i < kLooks; ++i, base::pause())
      if (holder(word) == 0 && try_take(word, self)) return true;
    return false;
  }
  /// The name in the word.
  static std::uint64_t holder(std::uint64_t& word) noexcept {
    return std::atomic_ref(word).load(std::memory_order_relaxed);
  }
  static void give_back(std::uint64_t& word) noexcept { end(word, 0); }
  static void end(std::uint64_t& word, std::uint64_t next) noexcept {
    std::atomic_ref(word).store(next, std::memory_order_release);
  }

 private:
  static constexpr std::size_t kLine = 8;  // words
  static constexpr std::size_t kStripes = kWords / kLine;
  static constexpr int kLooks = 24;
};

}  // namespace sluice::mpi_rma
