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

/// malloc'ed memory on pages of its own, every byte written: MPI calls this user memory.
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

/// Memory of the library for the streams of the command line: in a GPU for a GPU's stream.
sluice::Memory allocate(const Workload& workload, std::size_t bytes);

/// Slots of a channel in the memory that the command line names. A slot of an empty message has one byte, because no
/// memory is empty.
class Slots {
 public:
  Slots(const Workload& workload, int depth);
  sluice::Slice all() const { return slice_; }

 private:
  std::unique_ptr<Pages> user_;
  sluice::Slice slice_;
};

/// Reads `bytes` bytes, as a program that needs all of them.
inline std::uint64_t sum(const std::byte* payload, std::size_t bytes) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < bytes; ++i) total += static_cast<std::uint64_t>(payload[i]);
  return total;
}

/// Prevents the compiler from removing the computation of `value`.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

/// Called by every target with a payload that it has received: with --touch it reads the payload.
inline void use(const Workload& workload, const std::byte* payload) {
  if (workload.options.touch) keep(sum(payload, workload.bytes));
}

}  // namespace bench
