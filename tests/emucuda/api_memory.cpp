// SPDX-License-Identifier: Apache-2.0
// Memory of devices, and of the host where devices reach it.
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "tests/emucuda/driver.hpp"

using namespace emucuda;

namespace {

std::uintptr_t page() { return static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)); }
std::uintptr_t page_below(std::uintptr_t address) { return address / page() * page(); }
std::uintptr_t page_above(std::uintptr_t address) { return page_below(address + page() - 1); }

/// True if all of these pages have memory.
bool present(std::uintptr_t begin, std::uintptr_t end) {
  std::vector<unsigned char> pages((end - begin) / page());
  return ::mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()) == 0;
}

/// A driver keeps the pages that it was given, whatever the program maps at their addresses later. The emulator can
/// where they are mapped shared, and else returns null. Not for ThreadSanitizer, which takes another address for other
/// memory.
void* pin([[maybe_unused]] std::uintptr_t begin, [[maybe_unused]] std::size_t bytes) {
#ifdef __SANITIZE_THREAD__
  return nullptr;
#else
  void* const pages = ::mremap(reinterpret_cast<void*>(begin), 0, bytes, MREMAP_MAYMOVE);
  return pages == MAP_FAILED ? nullptr : pages;
#endif
}

void add_host_memory(Kind kind, void* memory, std::size_t bytes, unsigned flags, Context& context) {
  auto range = std::make_shared<Range>();
  range->kind = kind;
  range->base = reinterpret_cast<std::uintptr_t>(memory);
  range->bytes = bytes;
  range->alias = static_cast<char*>(memory);
  range->device = context.device();
  range->context = &context;
  range->flags = flags;
  if (kind == Kind::registered) {
    const std::uintptr_t begin = page_below(range->base);
    range->pinned_bytes = page_above(range->base + bytes) - begin;
    range->pinned = pin(begin, range->pinned_bytes);
    if (range->pinned != nullptr) range->alias = static_cast<char*>(range->pinned) + (range->base - begin);
  }
  driver().addresses.add(range);
}

/// The range that begins there, if it is of that kind.
RangePtr begins_at(std::uintptr_t address, Kind kind) {
  const RangePtr range = driver().addresses.at(address);
  return range && range->base == address && range->kind == kind ? range : nullptr;
}

/// Freeing memory waits for all streams of its context, whichever is current.
CUresult free_range(const char* call, const RangePtr& range) {
  const CUresult error = range->context->synchronize(call);
  driver().displace(*range);
  return error;
}

}  // namespace

extern "C" {

CUresult cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
  Context* context = nullptr;
  if (const CUresult error = use_context_unsafely(context)) return error;
  if (!pointer || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = context->synchronize("cuMemAlloc")) return error;
  std::size_t free = 0;
  std::size_t total = 0;
  if (cuMemGetInfo(&free, &total) != CUDA_SUCCESS || bytes > free) return CUDA_ERROR_OUT_OF_MEMORY;
  auto block = Block::create(bytes, driver().machine_ordinal(context->device()), 0);
  if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
  const RangePtr range = driver().place(Kind::device, block, *context, context->device());
  if (!range) return CUDA_ERROR_OUT_OF_MEMORY;
  driver().addresses.add(range);
  *pointer = range->base;
  return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr pointer) {
  Context* context = nullptr;
  if (const CUresult error = use_context_unsafely(context)) return error;
  if (const RangePtr range = begins_at(pointer, Kind::device)) return free_range("cuMemFree", range);
  const RangePtr range = begins_at(pointer, Kind::pool);
  if (!range || range->freeing.exchange(true)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult error = range->context->synchronize("cuMemFree");
  driver().displace_of_pool("cuMemFree", *range);
  return error;
}

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  constexpr unsigned kKnown = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  Context* context = nullptr;
  if (const CUresult error = use_context_unsafely(context)) return error;
  if (!pointer || bytes == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  add_host_memory(Kind::host, memory, bytes, flags | CU_MEMHOSTALLOC_DEVICEMAP, *context);
  *pointer = memory;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocHost(void** pointer, size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }

CUresult cuMemFreeHost(void* pointer) {
  Context* context = nullptr;
  if (const CUresult error = use_context_unsafely(context)) return error;
  const RangePtr range = begins_at(reinterpret_cast<std::uintptr_t>(pointer), Kind::host);
  return range ? free_range("cuMemFreeHost", range) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  Context* context = nullptr;
  if (const CUresult error = use_context_unsafely(context)) return error;
  if ((flags & (CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY)) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (!pointer || bytes == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (driver().addresses.in_window(address)) return CUDA_ERROR_INVALID_VALUE;
  // Devices map pages: two registrations cannot have one in common, even if no byte is.
  const std::uintptr_t begin = page_below(address);
  const std::uintptr_t end = page_above(address + bytes);
  if (driver().addresses.overlaps(begin, end - begin)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  if (!present(begin, end)) return CUDA_ERROR_INVALID_VALUE;
  add_host_memory(Kind::registered, pointer, bytes, flags | CU_MEMHOSTALLOC_DEVICEMAP, *context);
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* pointer) {
  Context* context = nullptr;
  if (const CUresult error = use_context_unsafely(context)) return error;
  const RangePtr range = begins_at(reinterpret_cast<std::uintptr_t>(pointer), Kind::registered);
  return range ? free_range("cuMemHostUnregister", range) : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* device_pointer, void* pointer, unsigned int flags) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const RangePtr range = driver().addresses.at(address);
  if (!device_pointer || flags != 0 || !range || !range->on_host()) return CUDA_ERROR_INVALID_VALUE;
  *device_pointer = address;
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* pointer) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  const RangePtr range = driver().addresses.at(reinterpret_cast<std::uintptr_t>(pointer));
  if (!flags || !range || range->kind != Kind::host) return CUDA_ERROR_INVALID_VALUE;
  *flags = range->flags;
  return CUDA_SUCCESS;
}
}
