// SPDX-License-Identifier: Apache-2.0
// A malloc whose blocks of a page and more lie in memory that peers of the host can map, for programs that are not
// changed. jemalloc divides that memory; smaller blocks are the C library's.
#include "device/heap/heap.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

// The C library's own functions, by their second names, which stay when a program replaces the first.
extern "C" {
void* libc_malloc(std::size_t bytes) __asm__("__libc_malloc");
void* libc_calloc(std::size_t count, std::size_t bytes) __asm__("__libc_calloc");
void* libc_realloc(void* block, std::size_t bytes) __asm__("__libc_realloc");
void* libc_memalign(std::size_t alignment, std::size_t bytes) __asm__("__libc_memalign");
void libc_free(void* block) __asm__("__libc_free");
}

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kChunk = std::size_t{1} << 30;
constexpr std::size_t kPlaces = std::size_t{1} << 12;  // of chunks, in the addresses that are reserved

/// A file of memory. One that is longer than a place takes several.
struct Chunk {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t used = 0;  // of these
  int fd = 0;
  dev_t device = 0;  // of the file: a program may close any descriptor, and open another file there
  ino_t inode = 0;
};

/// Set before the first block is given out, and never changed.
std::byte* g_begin = nullptr;
unsigned g_arena = 0;
std::size_t (*g_size_by_libc)(void*) = nullptr;
std::atomic<bool> g_ready{false};    // blocks may be given out
std::atomic<bool> g_private{false};  // a child of fork: peers see nothing of this heap

/// Held while a chunk is added; blocks are looked up meanwhile. A child of fork adds none.
pthread_mutex_t g_adding = PTHREAD_MUTEX_INITIALIZER;
Chunk g_chunks[kPlaces];               // by the first place of each
std::uint16_t g_first[kPlaces];        // of the chunk that has this place
std::atomic<std::size_t> g_places{0};  // in use

std::size_t round_up(std::size_t value, std::size_t to) noexcept { return (value + to - 1) / to * to; }

bool holds(const void* block) noexcept {
  return g_begin != nullptr &&
         reinterpret_cast<std::uintptr_t>(block) - reinterpret_cast<std::uintptr_t>(g_begin) < kPlaces * kChunk;
}

Chunk& chunk_of(const void* memory) noexcept {
  const auto place = static_cast<std::size_t>(static_cast<const std::byte*>(memory) - g_begin) / kChunk;
  return g_chunks[g_first[place]];
}

bool map_chunk(std::byte* at, std::size_t bytes, int fd, int flags) noexcept {
  return ::mmap(at, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED | MAP_NORESERVE, fd, 0) != MAP_FAILED;
}

bool is_its_file(const Chunk& chunk) noexcept {
  struct stat now {};
  return ::fstat(chunk.fd, &now) == 0 && now.st_dev == chunk.device && now.st_ino == chunk.inode;
}

/// A file of `bytes`, with a number that programs do not use by themselves; -1: there is none.
int new_file(std::size_t bytes) noexcept {
  constexpr int kHigh = 512;
  rlimit files{};
  // Beyond it the kernel would not fail but send a signal.
  if (::getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < bytes) return -1;
  const int low = ::memfd_create("sluice-heap", MFD_CLOEXEC);
  if (low < 0) return -1;
  int fd = ::fcntl(low, F_DUPFD_CLOEXEC, kHigh);
  if (fd < 0) fd = ::fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  ::close(low);
  if (fd < 0) return -1;
  if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0) return fd;
  ::close(fd);
  return -1;
}

/// Makes a chunk for `bytes`, the newest one.
bool add_chunk(std::size_t bytes) noexcept {
  const std::size_t first = g_places.load(std::memory_order_relaxed);
  const std::size_t places = bytes / kChunk + (bytes % kChunk == 0 ? 0 : 1);
  if (places > kPlaces - first) return false;
  const std::size_t whole = places * kChunk;
  std::byte* const at = g_begin + first * kChunk;
  const int fd = new_file(whole);
  struct stat file {};
  if (fd < 0) return false;
  if (::fstat(fd, &file) != 0 || !map_chunk(at, whole, fd, MAP_SHARED)) {
    ::close(fd);
    return false;
  }
  g_chunks[first] = {at, whole, 0, fd, file.st_dev, file.st_ino};
  for (std::size_t place = first; place < first + places; ++place) g_first[place] = static_cast<std::uint16_t>(first);
  g_places.store(first + places, std::memory_order_release);
  return true;
}

// ---- the hooks of jemalloc

/// The next `bytes` of the newest chunk, or of one that is added; null: there are none.
void* next_bytes(std::size_t bytes, std::size_t alignment) noexcept {
  const std::size_t places = g_places.load(std::memory_order_relaxed);
  Chunk* newest = places == 0 ? nullptr : &g_chunks[g_first[places - 1]];
  std::size_t offset = newest == nullptr ? 0 : round_up(newest->used, alignment);
  if (newest == nullptr || offset > newest->bytes || bytes > newest->bytes - offset) {
    if (!add_chunk(bytes)) return nullptr;
    newest = &g_chunks[places];
    offset = 0;
  }
  newest->used = offset + bytes;
  return newest->data + offset;
}

/// Pages of a new file are zero.
void* alloc(extent_hooks_t*, void* where, std::size_t bytes, std::size_t alignment, bool* zero, bool* committed,
            unsigned) noexcept {
  if (where != nullptr || alignment > kChunk || g_private) return nullptr;  // chunks lie at multiples of kChunk
  ::pthread_mutex_lock(&g_adding);
  void* const given = next_bytes(bytes, alignment);
  ::pthread_mutex_unlock(&g_adding);
  *zero = *zero || given != nullptr;
  *committed = true;
  return given;
}

bool dalloc(extent_hooks_t*, void*, std::size_t, bool, unsigned) noexcept { return true; }

bool commit(extent_hooks_t*, void*, std::size_t, std::size_t, std::size_t, unsigned) noexcept { return false; }

/// Gives pages back to the kernel, and leaves zeros.
bool purge_forced(extent_hooks_t*, void* data, std::size_t, std::size_t offset, std::size_t bytes, unsigned) noexcept {
  if (g_private) return true;
  // Not by fallocate: libraries that keep pages registered with a NIC watch madvise.
  const int before = errno;
  const bool given = ::madvise(static_cast<std::byte*>(data) + offset, bytes, MADV_REMOVE) == 0;
  errno = before;  // `free` keeps it
  return !given;
}

bool split(extent_hooks_t*, void*, std::size_t, std::size_t, std::size_t, bool, unsigned) noexcept { return false; }

bool merge(extent_hooks_t*, void* one, std::size_t, void* next, std::size_t, bool, unsigned) noexcept {
  return &chunk_of(one) != &chunk_of(next);
}

extent_hooks_t g_hooks{alloc, dalloc, nullptr, commit, nullptr, nullptr, purge_forced, split, merge};

// ---- the beginning, and a child of fork

/// Also from a child of fork.
template <std::size_t N>
void say(const char (&text)[N]) noexcept {
  (void)!::write(STDERR_FILENO, text, N - 1);
}

/// Makes the child's changes its own. It still sees what the parent changes in pages that it has not changed itself.
void part_from_parent() noexcept {
  if (g_private.exchange(true)) return;  // a child of such a child: its memory is a copy already
  for (std::size_t place = 0; place < g_places.load(); place += g_chunks[place].bytes / kChunk) {
    const Chunk& chunk = g_chunks[place];
    const std::size_t given = round_up(chunk.used, kPage);  // `ulimit -d` counts what is private
    if (given == 0 || (is_its_file(chunk) && map_chunk(chunk.data, given, chunk.fd, MAP_PRIVATE))) continue;
    say("sluice: error: libsluice_heap: a child of fork cannot have memory of its own\n");
    ::abort();  // it would change the parent's
  }
}

/// As jemalloc has it, which no header shows.
struct ArenaConfig {
  extent_hooks_t* hooks;
  bool for_metadata;  // that stays private: a child of fork needs what it was, and peers have no business there
};

bool make_arena() noexcept {
  ArenaConfig config{&g_hooks, false};
  std::size_t size = sizeof g_arena;
  if (::mallctl("experimental.arenas_create_ext", &g_arena, &size, &config, sizeof config) != 0) return false;
  char name[64] = "arena.";
  std::strcpy(std::to_chars(name + std::strlen(name), name + 20, g_arena).ptr, ".retain_grow_limit");
  std::size_t most = kChunk;  // at a time
  return ::mallctl(name, nullptr, nullptr, &most, sizeof most) == 0;
}

/// Not the next one of that name, which may be jemalloc's.
auto find_size_by_libc() noexcept {
  void* const libc = ::dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<std::size_t (*)(void*)>(::dlsym(libc, "malloc_usable_size"));
}

bool begin_heap() noexcept {
  g_size_by_libc = find_size_by_libc();
  void* const reserved =
      ::mmap(nullptr, (kPlaces + 1) * kChunk, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (g_size_by_libc == nullptr || reserved == MAP_FAILED) return false;
  g_begin = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(reserved), kChunk));
  return make_arena() && ::pthread_atfork(nullptr, nullptr, part_from_parent) == 0;
}

[[gnu::constructor]] void begin() noexcept {
  g_ready.store(begin_heap(), std::memory_order_release);
  if (!g_ready)
    say("sluice: warning: libsluice_heap: not enough address space (4 TiB), or another jemalloc than 5.3: malloc stays "
        "the C library's\n");
}

/// Null: the C library is to do it.
void* take(std::size_t bytes, std::size_t alignment, int flags) noexcept {
  if (bytes < kPage || !g_ready.load(std::memory_order_acquire) || g_private) return nullptr;
  const int aligned = alignment <= 1 ? 0 : MALLOCX_ALIGN(alignment);
  void* const block = ::mallocx(bytes, flags | aligned | MALLOCX_ARENA(g_arena) | MALLOCX_TCACHE_NONE);
  if (block == nullptr || holds(block)) return block;
  ::dallocx(block, MALLOCX_TCACHE_NONE);  // while jemalloc is at work, it takes another arena
  return nullptr;
}

bool multiply(std::size_t count, std::size_t bytes, std::size_t& all) noexcept {
  if (!__builtin_mul_overflow(count, bytes, &all)) return true;
  errno = ENOMEM;
  return false;
}

std::size_t size_of(void* block) noexcept {
  if (holds(block)) return ::sallocx(block, 0);
  return g_size_by_libc == nullptr ? find_size_by_libc()(block) : g_size_by_libc(block);  // null: before `begin`
}

/// Null: there is no memory, and the block stays.
void* move_to(void* to, void* block, std::size_t bytes) noexcept {
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
  if (!is_its_file(chunk)) return {nullptr, 0, -1};
  return {chunk.data, chunk.bytes, chunk.fd};
}

// ---- the names of the C library

#pragma GCC visibility push(default)
extern "C" {

void* malloc(std::size_t bytes) noexcept {
  void* const block = take(bytes, 1, 0);
  return block != nullptr ? block : libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) noexcept {
  std::size_t all = 0;
  if (!multiply(count, bytes, all)) return nullptr;
  void* const block = take(all, 1, MALLOCX_ZERO);
  return block != nullptr ? block : libc_calloc(count, bytes);
}

void* realloc(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return ::malloc(bytes);
  if (!holds(block)) {
    void* const to = take(bytes, 1, 0);
    return to != nullptr ? move_to(to, block, bytes) : libc_realloc(block, bytes);
  }
  if (bytes == 0) {
    ::free(block);
    return nullptr;
  }
  void* const same =
      bytes < kPage || g_private ? nullptr : ::rallocx(block, bytes, MALLOCX_ARENA(g_arena) | MALLOCX_TCACHE_NONE);
  return same != nullptr ? same : move_to(libc_malloc(bytes), block, bytes);
}

void* reallocarray(void* block, std::size_t count, std::size_t bytes) noexcept {
  std::size_t all = 0;
  return multiply(count, bytes, all) ? ::realloc(block, all) : nullptr;
}

void free(void* block) noexcept {
  if (!holds(block)) return libc_free(block);
  ::dallocx(block, MALLOCX_TCACHE_NONE);
}

void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  const bool power = alignment != 0 && (alignment & (alignment - 1)) == 0;
  void* const block = power ? take(bytes, alignment, 0) : nullptr;
  return block != nullptr ? block : libc_memalign(alignment, bytes);
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

void* pvalloc(std::size_t bytes) noexcept {
  std::size_t all = 0;
  if (!__builtin_add_overflow(bytes, kPage - 1, &all)) return ::memalign(kPage, all / kPage * kPage);
  errno = ENOMEM;
  return nullptr;
}

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
