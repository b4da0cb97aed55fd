// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace bench {

inline constexpr std::size_t kPage = 4096;
inline std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// malloc'ed memory on pages of its own, what MPI calls user memory. Every byte was written once, so that the first use
/// causes no page fault.
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

/// Allocates memory of the library: on the workload's GPU if the command line names a GPU's stream, else on the host.
sluice::Memory allocate(const Workload& workload, std::size_t bytes);

/// The slots of a channel, in the memory that --memory names. A slot has at least one byte, because memory of 0 bytes
/// cannot be allocated.
class Slots {
 public:
  Slots(const Workload& workload, int depth);
  sluice::Slice all() const { return slice_; }

 private:
  std::unique_ptr<Pages> user_;
  sluice::Slice slice_;
};

/// A sum that reads each of the bytes, by words where there are any.
inline std::uint64_t sum(const std::byte* payload, std::size_t bytes) {
  std::uint64_t total = 0;
  std::size_t at = 0;
  for (std::uint64_t word = 0; at + sizeof word <= bytes; at += sizeof word) {
    std::memcpy(&word, payload + at, sizeof word);
    total += word;
  }
  for (; at < bytes; ++at) total += static_cast<std::uint64_t>(payload[at]);
  return total;
}

/// Prevents the compiler from removing the computation of `value`.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

/// With --touch, writes a payload, as a program does that computes it. Every contender of round trips calls it before
/// each put.
inline void compute(const Workload& workload, std::byte* source) {
  if (!workload.options.touch) return;
  std::memset(source, 1, workload.bytes);
  keep(source);
}

/// With --touch, reads a payload. Every contender calls it for each message that it has received.
inline void touch(const Workload& workload, const std::byte* payload) {
  if (workload.options.touch) keep(sum(payload, workload.bytes));
}

}  // namespace bench
