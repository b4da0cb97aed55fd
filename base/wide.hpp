// SPDX-License-Identifier: Apache-2.0
// Changes 16 bytes of memory in one step, where the processor has an instruction for it. Compilers leave it to a
// library, or to flags for all of a program.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/races.hpp"

// ThreadSanitizer does not see what the instruction does.
#if defined(__x86_64__) && !defined(SLUICE_TELLS_OF_RACES)
#define SLUICE_CHANGES_16_BYTES
#include <cpuid.h>

namespace sluice::base {

/// False on the first processors of AMD with 64 bits alone.
inline const bool changes_16_bytes = [] {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_CMPXCHG16B) != 0;
}();

struct Halves {
  std::uint64_t low, high;
};

/// Stores `wanted` in one step if the bytes are `there`; else returns false, and `there` is what they are. `at` is a
/// multiple of 16.
inline bool exchange(std::byte* at, Halves& there, Halves wanted) noexcept {
  bool done = false;
  asm volatile("lock cmpxchg16b %1"
               : "=@ccz"(done), "+m"(*reinterpret_cast<std::byte(*)[sizeof(Halves)]>(at)), "+a"(there.low),
                 "+d"(there.high)
               : "b"(wanted.low), "c"(wanted.high)
               : "memory");
  return done;
}

}  // namespace sluice::base
#endif
