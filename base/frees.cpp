// SPDX-License-Identifier: Apache-2.0
// A module calls what it imports by a table, the GOT. Functions of ours are written into it, as heap profilers do.
// Layout: System V ABI, "Dynamic Linking".
#include "base/frees.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <malloc.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "base/races.hpp"

extern "C" [[gnu::weak]] void* asan_region_is_poisoned(void* begin,
                                                       std::size_t bytes) __asm__("__asan_region_is_poisoned");

namespace sluice::base {
namespace {

std::atomic<Freed> g_freed{nullptr};

void tell_of_free(const void* begin, std::size_t bytes, const void* from) noexcept {
  const auto* const first = static_cast<const std::byte*>(begin);
  if (begin != nullptr && bytes > 0) g_freed.load(std::memory_order_acquire)(first, first + bytes, from);
}

/// Functions that take a block of the heap first, and what the program calls in their place.
enum Import : std::uint8_t {
  kFree,
  kRealloc,
  kUnmap,
  kDelete,
  kDeleteArray,
  kDeleteSized,
  kDeleteArraySized,
  kDeleteAligned,
  kDeleteArrayAligned,
  kDeleteSizedAligned,
  kDeleteArraySizedAligned,
  kImports
};

std::array<void*, kImports> g_real{};  // written before any of ours is called

template <Import Which, class Result, class... More>
Result in_place_of(void* block, More... more) {
  const std::size_t bytes = block == nullptr ? 0 : ::malloc_usable_size(block);
  const auto real = reinterpret_cast<Result (*)(void*, More...)>(g_real[Which]);
  if constexpr (Which == kRealloc) {
    void* const moved = real(block, more...);
    if (moved != nullptr && moved != block) tell_of_free(block, bytes, __builtin_return_address(0));
    return moved;
  } else {
    tell_of_free(block, bytes, __builtin_return_address(0));
    return real(block, more...);
  }
}

int in_place_of_munmap(void* begin, std::size_t bytes) {
  tell_of_free(begin, bytes, __builtin_return_address(0));
  return reinterpret_cast<int (*)(void*, std::size_t)>(g_real[kUnmap])(begin, bytes);
}

struct Hook {
  const char* name;
  void* ours;
};

template <class Function>
void* address_of(Function* function) noexcept {
  return reinterpret_cast<void*>(function);
}

using Size = std::size_t;
using Alignment = std::align_val_t;

/// In the order of Import. Names of operators: Itanium C++ ABI.
const std::array<Hook, kImports>& hooks() {
  static const std::array<Hook, kImports> all{{
      {"free", address_of(&in_place_of<kFree, void>)},
      {"realloc", address_of(&in_place_of<kRealloc, void*, Size>)},
      {"munmap", address_of(&in_place_of_munmap)},
      {"_ZdlPv", address_of(&in_place_of<kDelete, void>)},
      {"_ZdaPv", address_of(&in_place_of<kDeleteArray, void>)},
      {"_ZdlPvm", address_of(&in_place_of<kDeleteSized, void, Size>)},
      {"_ZdaPvm", address_of(&in_place_of<kDeleteArraySized, void, Size>)},
      {"_ZdlPvSt11align_val_t", address_of(&in_place_of<kDeleteAligned, void, Alignment>)},
      {"_ZdaPvSt11align_val_t", address_of(&in_place_of<kDeleteArrayAligned, void, Alignment>)},
      {"_ZdlPvmSt11align_val_t", address_of(&in_place_of<kDeleteSizedAligned, void, Size, Alignment>)},
      {"_ZdaPvmSt11align_val_t", address_of(&in_place_of<kDeleteArraySizedAligned, void, Size, Alignment>)},
  }};
  return all;
}

Dl_info module_with(const void* address) noexcept {
  Dl_info module{};
  return ::dladdr(address, &module) == 0 ? Dl_info{} : module;
}

/// True for a function of a library that frees blocks which malloc_usable_size knows. Others are those of an allocator
/// of the program. In the program itself an address may be that of a call through the table.
bool frees_known_blocks(std::size_t which, void* function) noexcept {
  const Dl_info module = module_with(function);
  const Dl_info program = module_with(reinterpret_cast<const void*>(::getauxval(AT_ENTRY)));
  if (module.dli_fname == nullptr || module.dli_fbase == program.dli_fbase) return false;
  const Dl_info allocator = module_with(::dlsym(RTLD_DEFAULT, "malloc_usable_size"));
  if (which == kUnmap || module.dli_fbase == allocator.dli_fbase) return true;
  if (which == kFree || which == kRealloc) return false;
  const std::string_view path(module.dli_fname);
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("libstdc++.so") || name.starts_with("libc++");
}

/// Addresses and tables of one loaded module.
struct Module {
  std::uintptr_t base = 0;
  std::span<const ElfW(Phdr)> segments;
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  std::array<std::span<const ElfW(Rela)>, 2> relocations;
};

/// Some loaders state addresses in this table as they are in memory, others as they are in the file.
std::uintptr_t in_memory(std::uintptr_t base, std::uintptr_t address) noexcept {
  return address < base ? base + address : address;
}

Module module_of(const dl_phdr_info& info) noexcept {
  Module module{info.dlpi_addr, {info.dlpi_phdr, info.dlpi_phnum}, nullptr, nullptr, {}};
  const auto dynamic = std::ranges::find(module.segments, ElfW(Word){PT_DYNAMIC}, &ElfW(Phdr)::p_type);
  if (dynamic == module.segments.end()) return module;
  std::array<const ElfW(Rela)*, 2> first{};
  std::array<std::size_t, 2> bytes{};
  for (const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(module.base + dynamic->p_vaddr); entry->d_tag != DT_NULL;
       ++entry) {
    const std::uintptr_t address = in_memory(module.base, entry->d_un.d_ptr);
    switch (entry->d_tag) {
      case DT_SYMTAB: module.symbols = reinterpret_cast<const ElfW(Sym)*>(address); break;
      case DT_STRTAB: module.names = reinterpret_cast<const char*>(address); break;
      case DT_JMPREL: first[0] = reinterpret_cast<const ElfW(Rela)*>(address); break;
      case DT_PLTRELSZ: bytes[0] = entry->d_un.d_val; break;
      case DT_RELA: first[1] = reinterpret_cast<const ElfW(Rela)*>(address); break;
      case DT_RELASZ: bytes[1] = entry->d_un.d_val; break;
      default: break;
    }
  }
  if (module.symbols == nullptr || module.names == nullptr) return module;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i] != nullptr) module.relocations[i] = {first[i], bytes[i] / sizeof(ElfW(Rela))};
  }
  return module;
}

bool is_import(std::uint32_t type) noexcept {
  return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT || type == R_AARCH64_JUMP_SLOT ||
         type == R_AARCH64_GLOB_DAT;
}

/// The loader makes the pages of most tables read-only: whole pages, as many as the segment fills.
void write_import(const Module& module, std::uintptr_t address, void* function) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  void* const start = reinterpret_cast<void*>(address & ~(page - 1));
  const bool sealed = std::ranges::any_of(module.segments, [&](const ElfW(Phdr) & segment) {
    const std::uintptr_t begin = (module.base + segment.p_vaddr) & ~(page - 1);
    const std::uintptr_t end = (module.base + segment.p_vaddr + segment.p_memsz) & ~(page - 1);
    return segment.p_type == PT_GNU_RELRO && address >= begin && address < end;
  });
  if (sealed && ::mprotect(start, page, PROT_READ | PROT_WRITE) != 0) return;
  std::atomic_ref(*reinterpret_cast<void**>(address)).store(function);
  if (sealed) ::mprotect(start, page, PROT_READ);
}

/// Leaves an import alone that is of another function: the module was loaded with symbols of its own, or another tool
/// has written the table. Before its first call an import is an address in the module itself.
void hook_import(const Module& module, std::uintptr_t address, std::size_t which) noexcept {
  void* const now = std::atomic_ref(*reinterpret_cast<void**>(address)).load();
  const bool unbound = module_with(now).dli_fbase == module_with(reinterpret_cast<const void*>(address)).dli_fbase;
  if (now == g_real[which] || unbound) write_import(module, address, hooks()[which].ours);
}

/// Modules that had been loaded when the tables were written. Guarded by the loader's lock, in which `hook_module` is
/// called.
unsigned long long g_loaded = 0;

/// `first`: no module was looked at in this walk. Ends the walk if there are no new ones.
int hook_module(dl_phdr_info* info, std::size_t, void* first) {
  if (std::exchange(*static_cast<bool*>(first), false) && std::exchange(g_loaded, info->dlpi_adds) == info->dlpi_adds)
    return 1;
  if (std::string_view(info->dlpi_name).starts_with("linux-vdso")) return 0;
  const Module module = module_of(*info);
  for (const auto& relocations : module.relocations) {
    for (const ElfW(Rela) & relocation : relocations) {
      if (!is_import(static_cast<std::uint32_t>(relocation.r_info))) continue;
      const std::string_view name(module.names + module.symbols[relocation.r_info >> 32U].st_name);
      for (std::size_t i = 0; i < kImports; ++i) {
        if (g_real[i] != nullptr && name == hooks()[i].name) hook_import(module, module.base + relocation.r_offset, i);
      }
    }
  }
  return 0;
}

}  // namespace

void watch_frees(Freed freed) {
  if (&asan_region_is_poisoned != nullptr || races::kOn) return;
  static std::once_flag once;
  std::call_once(once, [freed] {
    g_freed = freed;
    for (std::size_t i = 0; i < kImports; ++i) {
      void* const real = ::dlsym(RTLD_DEFAULT, hooks()[i].name);
      if (real != nullptr && frees_known_blocks(i, real)) g_real[i] = real;
    }
  });
  bool first = true;
  ::dl_iterate_phdr(hook_module, &first);
}

bool known_as_freed(const std::byte* begin, std::size_t bytes) noexcept {
  if (&asan_region_is_poisoned == nullptr) return false;
  return asan_region_is_poisoned(const_cast<std::byte*>(begin), bytes) != nullptr;
}

bool is_mapped(const std::byte* begin, std::size_t bytes) noexcept {
  if (bytes == 0) return true;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(begin) & ~(page - 1);
  const std::size_t length = reinterpret_cast<std::uintptr_t>(begin) + bytes - first;
  // Does nothing but look (msync(2), notes on MS_ASYNC).
  return ::msync(reinterpret_cast<void*>(first), length, MS_ASYNC) == 0 || errno != ENOMEM;
}

}  // namespace sluice::base
