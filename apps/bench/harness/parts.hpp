// SPDX-License-Identifier: Apache-2.0
// Memory of every rank that all ranks reach, for the benches `hash_table` and `sparse_exchange`. Parts are made by all
// ranks together, from (Workload, PartBytes), with
//
//     std::byte* part()                    memory of this rank that all ranks reach; zeros at first
//     std::byte* local()                   memory of this rank for what it puts
//     uint64_t compare_swap(rank, at, expected, desired)
//     uint64_t fetch_add(rank, at, value)
//     uint64_t swap(rank, at, value)       of the word at an offset in a rank's part; they return what it was
//     void put(rank, from, bytes, at)      from an offset in local() to one in a rank's part: complete, and free to be
//                                          changed here, once `meet` has returned
//     void meet()                          returns when all ranks have called it and all accesses before have
//     completed;
//                                          each rank then sees its part, which it may change until the next `meet` if
//                                          no rank reaches those bytes
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <cstddef>
#include <cstdint>

namespace bench {

using Word = std::uint64_t;

struct PartBytes {
  std::size_t part;
  std::size_t local;
};

/// A random number for each (a, b, c), the same on all ranks (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
/// Generators", 2014: its mixing function).
inline Word mix(Word a, Word b = 0, Word c = 0) {
  Word x = a * 0x9e37'79b9'7f4a'7c15 + b * 0xd1b5'4a32'd192'ed03 + c * 0x8cb9'2ba7'2f3d'8dd7 + 0x9e37'79b9'7f4a'7c15;
  x = (x ^ (x >> 30U)) * 0xbf58'476d'1ce4'e5b9;
  x = (x ^ (x >> 27U)) * 0x94d0'49bb'1331'11eb;
  return x ^ (x >> 31U);
}

}  // namespace bench
