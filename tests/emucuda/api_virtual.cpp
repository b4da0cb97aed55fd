// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: addresses, physical memory and access apart from each other.
#include <fcntl.h>
#include <unistd.h>

#include "tests/emucuda/driver.hpp"
#include "tests/emucuda/physical.hpp"

using namespace emucuda;

namespace {

constexpr std::size_t kGranularity = std::size_t{2} << 20;

bool granular(std::uint64_t value) { return value % kGranularity == 0; }

/// Pinned memory of a device; with a descriptor for others, or none.
CUresult check_properties(const CUmemAllocationProp* properties) {
  if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  constexpr unsigned kTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if ((static_cast<unsigned>(properties->requestedHandleTypes) & ~kTypes) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  return driver().is_device(properties->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/// The mappings that make up exactly that range; none if a part is not mapped or one stands out.
std::vector<RangePtr> mappings(CUdeviceptr pointer, std::size_t bytes) {
  const auto pieces = driver().addresses.pieces(pointer, bytes);
  std::vector<RangePtr> result;
  if (!pieces) return result;
  for (const Piece& piece : *pieces) {
    if (piece.range->kind != Kind::mapped || piece.bytes != piece.range->bytes) return {};
    result.push_back(piece.range);
  }
  return result;
}

RangePtr mapping_of(const Physical& physical, CUdeviceptr pointer, std::size_t bytes, std::size_t offset) {
  auto range = std::make_shared<Range>();
  range->kind = Kind::mapped;
  range->base = pointer;
  range->bytes = bytes;
  range->alias = physical.block->alias() + offset;
  range->device = physical.device;
  range->context = &driver().context_of(physical.device);
  range->block = physical.block;
  return range;
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  if (const CUresult error = use_driver()) return error;
  if (const CUresult error = check_properties(properties)) return error;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  if (const CUresult error = use_driver()) return error;
  const bool power = (alignment & (alignment - 1)) == 0;
  if (!pointer || bytes == 0 || !granular(bytes) || !power || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *pointer = driver().addresses.reserve(bytes, std::max(alignment, kGranularity));
  return *pointer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
  if (const CUresult error = use_driver()) return error;
  const bool whole = bytes > 0 && driver().addresses.reserved(pointer) == bytes;
  if (!whole || driver().addresses.overlaps(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
  driver().addresses.unreserve(pointer);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  if (const CUresult error = use_driver()) return error;
  if (const CUresult error = check_properties(properties)) return error;
  if (!handle || bytes == 0 || !granular(bytes) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const int device = properties->location.id;
  auto block = Block::create(bytes, driver().machine_ordinal(device), properties->requestedHandleTypes);
  if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
  driver().physical.add(std::make_shared<Physical>(Physical{block, device}), handle);
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (const CUresult error = use_driver()) return error;
  return driver().physical.take(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  if (const CUresult error = use_driver()) return error;
  const auto physical = driver().physical.find(handle);
  // An offset is not supported by the driver either.
  if (!physical || bytes == 0 || offset != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!granular(pointer) || !granular(bytes) || bytes > physical->block->bytes()) return CUDA_ERROR_INVALID_VALUE;
  if (!driver().addresses.inside_reservation(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (driver().addresses.overlaps(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
  driver().addresses.add(mapping_of(*physical, pointer, bytes, offset));
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
  if (const CUresult error = use_driver()) return error;
  if (const CUresult error = driver().captures.use_unsafely()) return error;
  const auto ranges = mappings(pointer, bytes);
  if (ranges.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (int device = 0; device < driver().devices(); ++device) {
    Context& context = driver().context_of(device);
    if (context.active()) context.synchronize("cuMemUnmap");
  }
  for (const RangePtr& range : ranges) driver().displace(*range);
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  if (const CUresult error = use_driver()) return error;
  const auto ranges = mappings(pointer, bytes);
  if (ranges.empty() || !access || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!driver().is_device(access[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
    const std::uint64_t bit = std::uint64_t{1} << access[i].location.id;
    const bool yes = access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (const RangePtr& range : ranges) yes ? range->access.fetch_or(bit) : range->access.fetch_and(~bit);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer) {
  if (const CUresult error = use_driver()) return error;
  const RangePtr range = driver().addresses.at(pointer);
  if (!flags || !location || !range || range->kind != Kind::mapped) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !driver().is_device(location->id))
    return CUDA_ERROR_INVALID_VALUE;
  *flags = range->granted(location->id) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  if (const CUresult error = use_driver()) return error;
  const auto physical = driver().physical.find(handle);
  if (!properties || !physical) return CUDA_ERROR_INVALID_VALUE;
  *properties = {};
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  constexpr int kHidden = -1;
  properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties->location.id = driver().device_of_machine_ordinal(physical->block->label().device).value_or(kHidden);
  properties->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(physical->block->label().handle_types);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  if (const CUresult error = use_driver()) return error;
  const RangePtr range = driver().addresses.at(reinterpret_cast<std::uintptr_t>(address));
  if (!handle || !range || range->kind != Kind::mapped) return CUDA_ERROR_INVALID_VALUE;
  driver().physical.add(std::make_shared<Physical>(Physical{range->block, range->device}), handle);
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* descriptor, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  if (const CUresult error = use_driver()) return error;
  const auto physical = driver().physical.find(handle);
  if (!descriptor || !physical || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if ((physical->block->label().handle_types & type) == 0) return CUDA_ERROR_INVALID_VALUE;
  const int copy = ::fcntl(physical->block->descriptor(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(descriptor) = copy;
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* descriptor,
                                        CUmemAllocationHandleType type) {
  if (const CUresult error = use_driver()) return error;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  if (!driver().settings().imports) return CUDA_ERROR_NOT_PERMITTED;
  auto block = Block::from_descriptor(static_cast<int>(reinterpret_cast<std::intptr_t>(descriptor)));
  if (!block) return CUDA_ERROR_INVALID_VALUE;
  // A device that CUDA_VISIBLE_DEVICES hides has no ordinal; the memory then looks like the importer's.
  const int device = driver().device_of_machine_ordinal(block->label().device).value_or(0);
  driver().physical.add(std::make_shared<Physical>(Physical{block, device}), handle);
  return CUDA_SUCCESS;
}
}
