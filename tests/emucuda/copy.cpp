// SPDX-License-Identifier: Apache-2.0
#include "tests/emucuda/copy.hpp"

#include <algorithm>
#include <cstring>

namespace emucuda {
namespace {

template <class Word>
bool copy_word(char* to, const char* from, std::size_t bytes) {
  const auto misaligned =
      (reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % sizeof(Word);
  if (bytes != sizeof(Word) || misaligned != 0) return false;
  const Word value = __atomic_load_n(reinterpret_cast<const Word*>(from), __ATOMIC_ACQUIRE);
  __atomic_store_n(reinterpret_cast<Word*>(to), value, __ATOMIC_RELEASE);
  return true;
}

void copy_run(char* to, const char* from, std::size_t bytes) {
  if (copy_word<std::uint64_t>(to, from, bytes) || copy_word<std::uint32_t>(to, from, bytes)) return;
  std::memmove(to, from, bytes);
}

}  // namespace

bool alive(const Pieces& pieces) {
  return std::all_of(pieces.begin(), pieces.end(),
                     [](const Piece& piece) { return !piece.range || piece.range->usable(); });
}

void copy(const Pieces& to, const Pieces& from) {
  std::size_t target = 0;
  std::size_t done = 0;  // of the target piece
  for (const Piece& source : from) {
    for (std::size_t offset = 0; offset < source.bytes;) {
      const std::size_t bytes = std::min(source.bytes - offset, to[target].bytes - done);
      copy_run(to[target].at + done, source.at + offset, bytes);
      offset += bytes;
      done += bytes;
      if (done < to[target].bytes) continue;
      ++target;
      done = 0;
    }
  }
}

void fill(const Pieces& to, std::uint32_t value, std::size_t pattern_bytes) {
  for (const Piece& piece : to) {
    if (pattern_bytes == 1) {
      std::memset(piece.at, static_cast<int>(value), piece.bytes);
      continue;
    }
    auto* const words = reinterpret_cast<std::uint32_t*>(piece.at);
    for (std::size_t i = 0; i < piece.bytes / sizeof(value); ++i) __atomic_store_n(words + i, value, __ATOMIC_RELAXED);
  }
}

}  // namespace emucuda
