// SPDX-License-Identifier: Apache-2.0
// operator new that never frees, in a library: its blocks are none of the C library's.
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <new>

namespace {

constexpr std::size_t kArena = std::size_t{1} << 34U;
std::atomic<std::size_t> taken{0};

void* take(std::size_t bytes) {
  static char* const arena = [] {
    void* const pages =
        ::mmap(nullptr, kArena, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return pages == MAP_FAILED ? nullptr : static_cast<char*>(pages);
  }();
  constexpr std::size_t kAlignment = alignof(std::max_align_t);
  const std::size_t begin = taken.fetch_add((bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (arena == nullptr || begin + bytes > kArena) throw std::bad_alloc();
  return arena + begin;
}

}  // namespace

void* operator new(std::size_t bytes) { return take(bytes); }
void* operator new[](std::size_t bytes) { return take(bytes); }
void operator delete(void*) noexcept {}
void operator delete[](void*) noexcept {}
void operator delete(void*, std::size_t) noexcept {}
void operator delete[](void*, std::size_t) noexcept {}
