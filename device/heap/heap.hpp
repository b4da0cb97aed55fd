/* SPDX-License-Identifier: Apache-2.0 */
/* Where libsluice_heap keeps a block. The library looks for this function by its name. */
#pragma once

#include <cstddef>

extern "C" {

/// Memory that other processes can map by its descriptor, which stays open.
struct sluice_heap_chunk {
  void* data;
  std::size_t bytes;
  int fd;
};

/// Returns the chunk with these bytes; one without data if they are no part of a chunk, or the process is a child of
/// fork, whose heap is its own. Any thread.
[[gnu::visibility("default")]] sluice_heap_chunk sluice_heap_find(const void* memory, std::size_t bytes) noexcept;
}
