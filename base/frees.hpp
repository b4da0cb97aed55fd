// SPDX-License-Identifier: Apache-2.0
// Calls by which the program frees memory.
#pragma once

#include <cstddef>

namespace sluice::base {

/// Called in the freeing thread: before the memory is freed, or after a `realloc` that has moved it. It may be called
/// inside of any lock of the program's. `from`: the return address of the call that frees.
using Freed = void (*)(const std::byte* begin, const std::byte* end, const void* from) noexcept;

/// From now on `freed` is called for calls of `free`, `realloc`, `delete` and `munmap` from modules already loaded, by
/// their tables of imported functions (the GOT). A later call finds modules that were loaded since; its `freed` is
/// ignored. Not found: calls inside of the C library, of programs that are linked statically, and of allocators whose
/// blocks malloc_usable_size does not know. With a sanitizer it does nothing.
void watch_frees(Freed freed);

/// True if AddressSanitizer knows that some of these bytes are freed. False without it.
bool known_as_freed(const std::byte* begin, std::size_t bytes) noexcept;

/// True if the kernel has all of these bytes in its table of mappings.
bool is_mapped(const std::byte* begin, std::size_t bytes) noexcept;

}  // namespace sluice::base
