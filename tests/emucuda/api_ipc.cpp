// SPDX-License-Identifier: Apache-2.0
// Memory of cuMemAlloc in other processes. A handle names a descriptor of its owner's, whose process must still be
// there.
#include <cstring>

#include "tests/emucuda/driver.hpp"

using namespace emucuda;

namespace {

static_assert(sizeof(Ticket) <= sizeof(CUipcMemHandle));

/// The mapping that this context has already: CUDA gives the same address again, and counts.
RangePtr opened_before(const Context& context, const Ticket& ticket) {
  for (const RangePtr& range : driver().addresses.all()) {
    if (range->kind != Kind::ipc || range->context != &context) continue;
    if (ticket_of(*range->block).inode == ticket.inode) return range;
  }
  return nullptr;
}

CUresult open_new(Context& context, const Ticket& ticket, RangePtr& range) {
  auto block = open_ticket(ticket);
  if (!block) return CUDA_ERROR_INVALID_HANDLE;
  const bool own = driver().machine_ordinal(context.device()) == block->label().device;
  if (!own && !driver().settings().peers) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  // A device that CUDA_VISIBLE_DEVICES hides has no ordinal; the memory then looks like the opener's.
  const int device = driver().device_of_machine_ordinal(block->label().device).value_or(context.device());
  range = driver().place(Kind::ipc, block, context, device);
  if (!range) return CUDA_ERROR_MAP_FAILED;
  range->access |= std::uint64_t{1} << context.device();
  driver().addresses.add(range);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  const RangePtr range = driver().addresses.at(pointer);
  if (!handle || !range || range->kind != Kind::device) return CUDA_ERROR_INVALID_VALUE;
  const Ticket ticket = ticket_of(*range->block);
  std::memset(handle, 0, sizeof(*handle));
  std::memcpy(handle, &ticket, sizeof(ticket));
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned int flags) {
  Context* context = nullptr;
  if (const CUresult error = use_context_unsafely(context)) return error;
  if (!pointer || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  Ticket ticket{};
  std::memcpy(&ticket, &handle, sizeof(ticket));
  if (from_this_process(ticket)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!driver().settings().imports) return CUDA_ERROR_MAP_FAILED;
  RangePtr range = opened_before(*context, ticket);
  if (range) {
    ++range->opened;
  } else if (const CUresult error = open_new(*context, ticket, range)) {
    return error;
  }
  *pointer = range->base;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  Context* context = nullptr;
  if (const CUresult error = use_context_unsafely(context)) return error;
  const RangePtr range = driver().addresses.at(pointer);
  if (!range || range->base != pointer || range->kind != Kind::ipc) return CUDA_ERROR_INVALID_VALUE;
  const CUresult error = range->context->synchronize("cuIpcCloseMemHandle");
  if (--range->opened == 0) driver().displace(*range);
  return error;
}
}
