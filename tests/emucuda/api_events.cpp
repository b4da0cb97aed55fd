// SPDX-License-Identifier: Apache-2.0
#include "tests/emucuda/backoff.hpp"
#include "tests/emucuda/driver.hpp"
#include "tests/emucuda/event.hpp"

using namespace emucuda;

namespace {

CUresult use_event(CUevent handle, std::shared_ptr<Event>& event) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  event = driver().events.find(handle);
  return event ? event->context.error() : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

extern "C" {

CUresult cuEventCreate(CUevent* handle, unsigned int flags) {
  constexpr unsigned kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (!handle || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  driver().events.add(std::make_shared<Event>(*context, flags), handle);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  return driver().events.take(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  std::shared_ptr<Event> event;
  StreamPtr stream;
  if (const CUresult error = use_event(handle, event)) return error;
  if (const CUresult error = use_stream(stream_handle, stream, IfCapturing::refuse)) return error;
  if (&event->context != &stream->context) return CUDA_ERROR_INVALID_HANDLE;
  const auto recording = std::make_shared<Recording>();
  const std::lock_guard lock(event->mutex);
  event->last = recording;
  stream->context.submit(stream, [recording](Turn&) {
    recording->when = std::chrono::steady_clock::now();
    recording->done = true;
    return CUDA_SUCCESS;
  });
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent handle) {
  std::shared_ptr<Event> event;
  if (const CUresult error = use_event(handle, event)) return error;
  if (const CUresult error = driver().captures.use_unsafely()) return error;
  const auto recording = event->recording();
  return !recording || recording->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
  std::shared_ptr<Event> event;
  if (const CUresult error = use_event(handle, event)) return error;
  if (const CUresult error = driver().captures.use_unsafely()) return error;
  const auto recording = event->recording();
  Backoff backoff;
  while (recording && !recording->done && event->context.error() == CUDA_SUCCESS) backoff.pause();
  return event->context.error();
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin_handle, CUevent end_handle) {
  std::shared_ptr<Event> begin;
  std::shared_ptr<Event> end;
  if (const CUresult error = use_event(begin_handle, begin)) return error;
  if (const CUresult error = use_event(end_handle, end)) return error;
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  if (((begin->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
  const auto from = begin->recording();
  const auto to = end->recording();
  if (!from || !to) return CUDA_ERROR_INVALID_HANDLE;
  if (!from->done || !to->done) return CUDA_ERROR_NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(to->when - from->when).count();
  return CUDA_SUCCESS;
}

/// It waits for what is recorded now, whatever becomes of the event.
CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags) {
  std::shared_ptr<Event> event;
  StreamPtr stream;
  if (const CUresult error = use_event(handle, event)) return error;
  if (const CUresult error = use_stream(stream_handle, stream, IfCapturing::refuse)) return error;
  if (flags != CU_EVENT_WAIT_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  const auto recording = event->recording();
  if (!recording) return CUDA_SUCCESS;
  stream->context.submit(stream, [recording, event](Turn& turn) {
    turn.wait([&] {
      return recording->done || event->context.error() != CUDA_SUCCESS || turn.context().error() != CUDA_SUCCESS;
    });
    return CUDA_SUCCESS;
  });
  return CUDA_SUCCESS;
}
}
