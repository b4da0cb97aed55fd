// SPDX-License-Identifier: Apache-2.0
// Calls by which the program frees memory.
#pragma once

#include <cstddef>

#include "base/places.hpp"

namespace sluice::base {

/// Called in the freeing thread, before the memory is freed. It may be called inside of any lock of the program's.
using Freed = void (*)(const std::byte* begin, const std::byte* end, Place place) noexcept;

/// From now on `freed` is called for each call of `free`, `realloc`, `delete` and `munmap` that the modules which are
/// loaded now make by their tables of imported functions (the GOT). Not found: calls of modules
/// that are loaded later, inside of the C library, of programs that are linked statically, and of programs that bring
/// their own allocator, as those with a sanitizer do. Only the first call in a process does anything.
void watch_frees(Freed freed);

/// True if AddressSanitizer knows that some of these bytes are freed. False without it.
bool known_as_freed(const std::byte* begin, std::size_t bytes) noexcept;

/// True if the kernel has all of these bytes in its table of mappings.
bool is_mapped(const std::byte* begin, std::size_t bytes) noexcept;

}  // namespace sluice::base
