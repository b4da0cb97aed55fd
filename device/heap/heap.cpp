// SPDX-License-Identifier: Apache-2.0
// A malloc whose blocks of a page and more lie in memory that peers of the host can map, for programs that are not
// changed. jemalloc divides that memory; smaller blocks are the C library's.
#include "device/heap/heap.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>

// The C library's own functions, by the names that it has for those who replace them.
extern "C" {
void* __libc_malloc(std::size_t bytes);                           // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(std::size_t count, std::size_t bytes);        // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void* block, std::size_t bytes);             // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t alignment, std::size_t bytes);  // NOLINT(bugprone-reserved-identifier)
void __libc_free(void* block);                                    // NOLINT(bugprone-reserved-identifier)
}

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kChunk = std::size_t{1} << 30;
constexpr std::size_t kPlaces = std::size_t{1} << 12;  // of chunks, in the addresses that are reserved

/// A file of memory. One that is longer than a place takes several.
struct Chunk {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int fd = -1;
};

/// Set before the first block is given out, and never changed.
std::byte* g_begin = nullptr;
unsigned g_arena = 0;
std::atomic<bool> g_ready{false};    // blocks may be given out
std::atomic<bool> g_private{false};  // a child of fork: peers see nothing of this heap

/// jemalloc asks for more from one thread at a time, but others look up blocks meanwhile.
Chunk g_chunks[kPlaces];               // by the first place of each
std::uint16_t g_first[kPlaces];        // of the chunk that has this place
std::atomic<std::size_t> g_places{0};  // in use
std::size_t g_used = 0;                // bytes of the newest chunk

std::size_t round_up(std::size_t value, std::size_t to) noexcept { return (value + to - 1) / to * to; }

bool holds(const void* block) noexcept {
  // Also false before there is a heap: no block is at so low an address.
  return reinterpret_cast<std::uintptr_t>(block) - reinterpret_cast<std::uintptr_t>(g_begin) < kPlaces * kChunk &&
         g_begin != nullptr;
}

Chunk& chunk_of(const void* memory) noexcept {
  const auto place = static_cast<std::size_t>(static_cast<const std::byte*>(memory) - g_begin) / kChunk;
  return g_chunks[g_first[place]];
}

bool map_chunk(std::byte* at, std::size_t bytes, int fd, int flags) noexcept {
  return ::mmap(at, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED | MAP_NORESERVE, fd, 0) != MAP_FAILED;
}

/// Makes a chunk for `bytes`, the newest one.
bool add_chunk(std::size_t bytes) noexcept {
  const std::size_t first = g_places.load(std::memory_order_relaxed);
  const std::size_t places = (bytes + kChunk - 1) / kChunk;
  if (places > kPlaces - first) return false;
  const int fd = ::memfd_create("sluice-heap", MFD_CLOEXEC);
  if (fd < 0) return false;
  const std::size_t whole = places * kChunk;
  std::byte* const at = g_begin + first * kChunk;
  if (::ftruncate(fd, static_cast<off_t>(whole)) != 0 || !map_chunk(at, whole, fd, MAP_SHARED)) {
    ::close(fd);
    return false;
  }
  g_chunks[first] = {at, whole, fd};
  for (std::size_t place = first; place < first + places; ++place) g_first[place] = static_cast<std::uint16_t>(first);
  g_places.store(first + places, std::memory_order_release);
  g_used = 0;
  return true;
}

// ---- what jemalloc asks for

/// Pages of a new file are zero.
void* more(extent_hooks_t*, void* where, std::size_t bytes, std::size_t alignment, bool* zero, bool* commit,
           unsigned) noexcept {
  if (where != nullptr || g_private) return nullptr;
  const std::size_t places = g_places.load(std::memory_order_relaxed);
  const Chunk* newest = places == 0 ? nullptr : &g_chunks[g_first[places - 1]];
  const auto start = [&] { return round_up(reinterpret_cast<std::uintptr_t>(newest->data) + g_used, alignment); };
  const auto end = [&] { return reinterpret_cast<std::uintptr_t>(newest->data) + newest->bytes; };
  if (newest == nullptr || start() + bytes > end()) {
    if (!add_chunk(bytes)) return nullptr;
    newest = &g_chunks[places];
    if (start() + bytes > end()) return nullptr;  // aligned to more than a chunk
  }
  const std::uintptr_t at = start();
  g_used = at + bytes - reinterpret_cast<std::uintptr_t>(newest->data);
  *zero = true;
  *commit = true;
  return reinterpret_cast<void*>(at);
}

bool keep(extent_hooks_t*, void*, std::size_t, bool, unsigned) noexcept { return true; }

bool is_there(extent_hooks_t*, void*, std::size_t, std::size_t, std::size_t, unsigned) noexcept { return false; }

/// Gives pages back to the kernel, and leaves zeros.
bool give_back(extent_hooks_t*, void* data, std::size_t, std::size_t offset, std::size_t bytes, unsigned) noexcept {
  if (g_private) return true;
  const std::byte* const at = static_cast<std::byte*>(data) + offset;
  const Chunk& chunk = chunk_of(at);
  return ::fallocate(chunk.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at - chunk.data,
                     static_cast<off_t>(bytes)) != 0;
}

bool split(extent_hooks_t*, void*, std::size_t, std::size_t, std::size_t, bool, unsigned) noexcept { return false; }

bool merge(extent_hooks_t*, void* one, std::size_t, void* next, std::size_t, bool, unsigned) noexcept {
  return &chunk_of(one) != &chunk_of(next);
}

extent_hooks_t g_hooks{more, keep, nullptr, is_there, nullptr, nullptr, give_back, split, merge};

// ---- the beginning, and a child of fork

/// What the child changes stays its own. It still sees what the parent changes in pages that it has not changed itself.
void part_from_parent() noexcept {
  g_private = true;
  for (std::size_t place = 0; place < g_places.load(); place += g_chunks[place].bytes / kChunk)
    (void)map_chunk(g_chunks[place].data, g_chunks[place].bytes, g_chunks[place].fd, MAP_PRIVATE);
}

[[gnu::constructor]] void begin() noexcept {
  void* const reserved =
      ::mmap(nullptr, kPlaces * kChunk, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return;
  g_begin = static_cast<std::byte*>(reserved);
  extent_hooks_t* hooks = &g_hooks;
  std::size_t size = sizeof g_arena;
  if (::mallctl("arenas.create", &g_arena, &size, &hooks, sizeof hooks) != 0) return;
  if (::pthread_atfork(nullptr, nullptr, part_from_parent) == 0) g_ready.store(true, std::memory_order_release);
}

/// Null: the C library is to do it.
void* take(std::size_t bytes, std::size_t alignment, int flags) noexcept {
  if (bytes < kPage || !g_ready.load(std::memory_order_acquire) || g_private) return nullptr;
  const int aligned = alignment <= 1 ? 0 : MALLOCX_ALIGN(alignment);
  return ::mallocx(bytes, flags | aligned | MALLOCX_ARENA(g_arena) | MALLOCX_TCACHE_NONE);
}

bool multiply(std::size_t count, std::size_t bytes, std::size_t& all) noexcept {
  if (!__builtin_mul_overflow(count, bytes, &all)) return true;
  errno = ENOMEM;
  return false;
}

/// Not the next one of that name, which may be jemalloc's. To look for it may allocate, but asks for no size.
auto size_by_libc() noexcept {
  static std::atomic<std::size_t (*)(void*)> found{nullptr};
  if (const auto before = found.load(std::memory_order_relaxed); before != nullptr) return before;
  void* const libc = ::dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  const auto now = reinterpret_cast<std::size_t (*)(void*)>(::dlsym(libc, "malloc_usable_size"));
  found.store(now, std::memory_order_relaxed);
  return now;
}

std::size_t size_of(void* block) noexcept {
  if (holds(block)) return ::sallocx(block, 0);
  return size_by_libc()(block);
}

/// Null: there is no memory, and the block stays.
void* move(void* block, std::size_t bytes, void* to) noexcept {
  if (to == nullptr) return nullptr;
  std::memcpy(to, block, std::min(bytes, size_of(block)));
  ::free(block);
  return to;
}

}  // namespace

sluice_heap_chunk sluice_heap_find(const void* memory, std::size_t bytes) noexcept {
  if (!holds(memory) || g_private) return {nullptr, 0, -1};
  const Chunk& chunk = chunk_of(memory);
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(memory) - chunk.data);
  if (chunk.data == nullptr || offset > chunk.bytes || bytes > chunk.bytes - offset) return {nullptr, 0, -1};
  return {chunk.data, chunk.bytes, chunk.fd};
}

// ---- the names of the C library

#pragma GCC visibility push(default)
extern "C" {

void* malloc(std::size_t bytes) noexcept {
  void* const block = take(bytes, 1, 0);
  return block != nullptr ? block : __libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) noexcept {
  std::size_t all = 0;
  if (!multiply(count, bytes, all)) return nullptr;
  void* const block = take(all, 1, MALLOCX_ZERO);
  return block != nullptr ? block : __libc_calloc(count, bytes);
}

void* realloc(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return ::malloc(bytes);
  if (!holds(block)) {
    void* const to = take(bytes, 1, 0);
    return to != nullptr ? move(block, bytes, to) : __libc_realloc(block, bytes);
  }
  if (bytes == 0) {
    ::free(block);
    return nullptr;
  }
  void* const same =
      bytes < kPage || g_private ? nullptr : ::rallocx(block, bytes, MALLOCX_ARENA(g_arena) | MALLOCX_TCACHE_NONE);
  return same != nullptr ? same : move(block, bytes, __libc_malloc(bytes));
}

void* reallocarray(void* block, std::size_t count, std::size_t bytes) noexcept {
  std::size_t all = 0;
  return multiply(count, bytes, all) ? ::realloc(block, all) : nullptr;
}

void free(void* block) noexcept {
  if (!holds(block)) return __libc_free(block);
  ::dallocx(block, MALLOCX_TCACHE_NONE);
}

void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  const bool power = alignment != 0 && (alignment & (alignment - 1)) == 0;
  void* const block = power ? take(bytes, alignment, 0) : nullptr;
  return block != nullptr ? block : __libc_memalign(alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept { return ::memalign(alignment, bytes); }

int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) noexcept {
  if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  const int before = errno;
  void* const taken = ::memalign(alignment, bytes);
  errno = before;
  if (taken == nullptr) return ENOMEM;
  *block = taken;
  return 0;
}

void* valloc(std::size_t bytes) noexcept { return ::memalign(kPage, bytes); }

void* pvalloc(std::size_t bytes) noexcept { return ::memalign(kPage, round_up(bytes, kPage)); }

std::size_t malloc_usable_size(void* block) noexcept { return block == nullptr ? 0 : size_of(block); }

}  // extern "C"

// ---- the names of C++, of which jemalloc has its own: one of a pair must not be taken from there

namespace {

void* take_for_new(std::size_t bytes, std::size_t alignment) {
  while (true) {
    void* const block = alignment == 0 ? ::malloc(bytes) : ::memalign(alignment, bytes);
    if (block != nullptr) return block;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

void* take_or_null(std::size_t bytes, std::size_t alignment) noexcept {
  try {
    return take_for_new(bytes, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

constexpr std::size_t number(std::align_val_t alignment) noexcept { return static_cast<std::size_t>(alignment); }

}  // namespace

using Nothrow = const std::nothrow_t&;
using Align = std::align_val_t;

void* operator new(std::size_t bytes) { return take_for_new(bytes, 0); }
void* operator new[](std::size_t bytes) { return take_for_new(bytes, 0); }
void* operator new(std::size_t bytes, Align alignment) { return take_for_new(bytes, number(alignment)); }
void* operator new[](std::size_t bytes, Align alignment) { return take_for_new(bytes, number(alignment)); }
void* operator new(std::size_t bytes, Nothrow) noexcept { return take_or_null(bytes, 0); }
void* operator new[](std::size_t bytes, Nothrow) noexcept { return take_or_null(bytes, 0); }
void* operator new(std::size_t bytes, Align alignment, Nothrow) noexcept {
  return take_or_null(bytes, number(alignment));
}
void* operator new[](std::size_t bytes, Align alignment, Nothrow) noexcept {
  return take_or_null(bytes, number(alignment));
}
void operator delete(void* block) noexcept { ::free(block); }
void operator delete[](void* block) noexcept { ::free(block); }
void operator delete(void* block, std::size_t) noexcept { ::free(block); }
void operator delete[](void* block, std::size_t) noexcept { ::free(block); }
void operator delete(void* block, Align) noexcept { ::free(block); }
void operator delete[](void* block, Align) noexcept { ::free(block); }
void operator delete(void* block, std::size_t, Align) noexcept { ::free(block); }
void operator delete[](void* block, std::size_t, Align) noexcept { ::free(block); }
void operator delete(void* block, Nothrow) noexcept { ::free(block); }
void operator delete[](void* block, Nothrow) noexcept { ::free(block); }
void operator delete(void* block, Align, Nothrow) noexcept { ::free(block); }
void operator delete[](void* block, Align, Nothrow) noexcept { ::free(block); }
#pragma GCC visibility pop
