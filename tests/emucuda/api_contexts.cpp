// SPDX-License-Identifier: Apache-2.0
// Primary contexts, and each thread's stack of them. There are no others.
#include "tests/emucuda/driver.hpp"

using namespace emucuda;

namespace {

/// Null for a null handle, which is allowed where a context is made current.
CUresult find_context(CUcontext handle, Context*& context) {
  if (const CUresult error = use_driver()) return error;
  context = handle ? driver().context_of(handle) : nullptr;
  return handle && (!context || !context->active()) ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUcontext current_handle() {
  const auto& stack = current_contexts();
  return stack.empty() || !stack.back() ? nullptr : stack.back()->handle();
}

/// The two contexts of peer access: the current one, and that of another device.
CUresult use_peers(CUcontext peer_handle, Context*& context, Context*& peer) {
  if (const CUresult error = use_context(context)) return error;
  if (const CUresult error = find_context(peer_handle, peer)) return error;
  if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
  return peer == context ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice device) {
  if (const CUresult error = use_device(device)) return error;
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  Context& context = driver().context_of(device);
  context.retain();
  *handle = context.handle();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  if (const CUresult error = use_device(device)) return error;
  return driver().context_of(device).release() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  if (const CUresult error = use_device(device)) return error;
  if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
  *flags = driver().context_of(device).flags;
  *active = driver().context_of(device).active() ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  if (const CUresult error = use_device(device)) return error;
  driver().context_of(device).flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* handle) {
  if (const CUresult error = use_driver()) return error;
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  *handle = current_handle();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  Context* context = nullptr;
  if (const CUresult error = find_context(handle, context)) return error;
  auto& stack = current_contexts();
  if (!stack.empty()) stack.pop_back();
  if (context) stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext handle) {
  Context* context = nullptr;
  if (const CUresult error = find_context(handle, context)) return error;
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  current_contexts().push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* handle) {
  if (const CUresult error = use_driver()) return error;
  if (current_contexts().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle) *handle = current_handle();
  current_contexts().pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  Context* context = nullptr;
  if (const CUresult error = use_context_unsafely(context)) return error;
  if (const CUresult error = driver().captures.use_all(*context)) return error;
  return context->synchronize("cuCtxSynchronize");
}

CUresult cuCtxEnablePeerAccess(CUcontext peer_handle, unsigned int flags) {
  Context* context = nullptr;
  Context* peer = nullptr;
  if (const CUresult error = use_peers(peer_handle, context, peer)) return error;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!driver().settings().peers) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const std::uint64_t bit = std::uint64_t{1} << peer->device();
  return (context->peers.fetch_or(bit) & bit) != 0 ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer_handle) {
  Context* context = nullptr;
  Context* peer = nullptr;
  if (const CUresult error = use_peers(peer_handle, context, peer)) return error;
  const std::uint64_t bit = std::uint64_t{1} << peer->device();
  return (context->peers.fetch_and(~bit) & bit) != 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
}
