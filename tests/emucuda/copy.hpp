// SPDX-License-Identifier: Apache-2.0
// Moving bytes between pieces of memory.
#pragma once

#include <cstdint>

#include "tests/emucuda/addresses.hpp"

namespace emucuda {

/// False if any of it was freed since the operation was submitted, or its allocation has not been reached.
bool alive(const Pieces& pieces);
/// Copies all of `from`. A copy of one aligned word is seen whole.
void copy(const Pieces& to, const Pieces& from);
/// Repeats a pattern of 1 or 4 bytes.
void fill(const Pieces& to, std::uint32_t value, std::size_t pattern_bytes);

}  // namespace emucuda
