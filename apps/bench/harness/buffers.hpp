// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace bench {

inline constexpr std::size_t kPage = 4096;
inline std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// malloc'ed memory on pages of its own, every byte written: what MPI calls user memory.
class Pages {
 public:
  explicit Pages(std::size_t bytes);
  std::byte* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

/// Memory that the library allocates where the streams of the command line find it: a GPU's for a GPU's.
sluice::Memory allocate(const Case& one_case, std::size_t bytes);

/// Slots of a channel in the memory that the command line asks for. A slot of an empty message has one byte, since no
/// memory has none.
class Slots {
 public:
  Slots(const Case& one_case, int depth);
  sluice::Slice all() const { return slice_; }

 private:
  std::unique_ptr<Pages> user_;
  sluice::Slice slice_;
};

/// Reads `bytes` bytes as a program does that needs all of them.
inline std::uint64_t sum(const std::byte* payload, std::size_t bytes) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < bytes; ++i) total += static_cast<std::uint64_t>(payload[i]);
  return total;
}

/// Keeps the compiler from leaving out what made `value`.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

/// What every target does with a payload that it has: read it, if --touch says so.
inline void use(const Case& one_case, const std::byte* payload) {
  if (one_case.options.touch) keep(sum(payload, one_case.bytes));
}

}  // namespace bench
