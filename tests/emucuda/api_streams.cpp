// SPDX-License-Identifier: Apache-2.0
// Streams, and host functions on them.
#include "tests/emucuda/driver.hpp"

using namespace emucuda;

CUresult emucuda::HostFunction::operator()(Turn& turn) const {
  in_stream_function() = true;
  function(data);
  in_stream_function() = false;
  turn.function_over();
  return CUDA_SUCCESS;
}

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned int flags, int priority) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  if (!handle || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (priority != 0 && !driver().settings().makes_ours) return CUDA_ERROR_OUT_OF_MEMORY;
  driver().streams.add(context->create_stream(flags, priority), handle);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* handle, unsigned int flags) { return cuStreamCreateWithPriority(handle, flags, 0); }

/// Returns at once; what was submitted is still done.
CUresult cuStreamDestroy(CUstream handle) {
  StreamPtr stream;
  if (const CUresult error = use_stream(handle, stream, IfCapturing::refuse)) return error;
  return driver().streams.take(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamSynchronize(CUstream handle) {
  StreamPtr stream;
  if (const CUresult error = use_stream(handle, stream, IfCapturing::refuse)) return error;
  if (const CUresult error = driver().captures.use_unsafely()) return error;
  ++stream->awaited;
  const CUresult result = stream->context.wait(stream->context.before(stream));
  --stream->awaited;
  return result;
}

CUresult cuStreamQuery(CUstream handle) {
  StreamPtr stream;
  if (const CUresult error = use_stream(handle, stream, IfCapturing::refuse)) return error;
  if (const CUresult error = driver().captures.use_unsafely()) return error;
  for (const Mark& mark : stream->context.before(stream)) {
    if (!mark.reached()) return CUDA_ERROR_NOT_READY;
  }
  return stream->context.error();
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  StreamPtr stream;
  if (const CUresult error = use_stream(handle, stream, IfCapturing::ignore)) return error;
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  StreamPtr stream;
  if (const CUresult error = use_stream(handle, stream, IfCapturing::ignore)) return error;
  if (!priority) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

/// Unlike its handle, it tells the default streams of different contexts apart.
CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  StreamPtr stream;
  if (const CUresult error = use_stream(handle, stream, IfCapturing::refuse)) return error;
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  *id = stream->id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  StreamPtr stream;
  if (const CUresult error = use_stream(handle, stream, IfCapturing::ask)) return error;
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  *context = stream->context.handle();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  StreamPtr stream;
  if (const CUresult error = use_stream(handle, stream, IfCapturing::ignore)) return error;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *device = stream->context.device();
  return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  StreamPtr stream;
  if (const CUresult error = use_stream(handle, stream)) return error;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  stream->context.submit(stream, HostFunction{function, data});
  return CUDA_SUCCESS;
}
}
