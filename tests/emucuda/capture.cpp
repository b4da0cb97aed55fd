// SPDX-License-Identifier: Apache-2.0
#include "tests/emucuda/capture.hpp"

#include <algorithm>
#include <iterator>

namespace emucuda {
namespace {

/// The legacy stream would have to wait for a capture of this stream, which never ends by itself.
bool blocks_legacy(const Stream& stream, const Context& context) {
  return stream.blocking() && &stream.context == &context;
}

}  // namespace

CUstreamCaptureMode& thread_capture_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

CUresult Captures::begin(const StreamPtr& stream, CUstreamCaptureMode mode) {
  if (stream->context.is_legacy(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::lock_guard lock(mutex_);
  const bool first = captures_.try_emplace(stream, Capture{last_id_ + 1, mode, std::this_thread::get_id()}).second;
  if (!first) return CUDA_ERROR_ILLEGAL_STATE;
  ++last_id_;
  return CUDA_SUCCESS;
}

CUresult Captures::end(const StreamPtr& stream, std::shared_ptr<Graph>& graph) {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(stream);
  if (found == captures_.end()) return CUDA_ERROR_ILLEGAL_STATE;
  Capture& capture = found->second;
  const bool anyone = capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED;
  if (!anyone && capture.beginner != std::this_thread::get_id()) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (capture.valid) graph = std::make_shared<Graph>(Graph{stream->context, std::move(capture.recorded)});
  captures_.erase(found);
  return graph ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult Captures::look(const StreamPtr& stream, CUstreamCaptureStatus& status, cuuint64_t* id) const {
  const bool legacy = stream->context.is_legacy(stream);
  const std::lock_guard lock(mutex_);
  const auto blocks = [&](const auto& entry) { return blocks_legacy(*entry.first, stream->context); };
  if (legacy && std::any_of(captures_.begin(), captures_.end(), blocks)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  status = CU_STREAM_CAPTURE_STATUS_NONE;
  const auto found = captures_.find(stream);
  if (found == captures_.end()) return CUDA_SUCCESS;
  status = found->second.valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  if (id) *id = found->second.id;
  return CUDA_SUCCESS;
}

bool Captures::record(const StreamPtr& stream, Operations& operations) {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(stream);
  if (found == captures_.end()) return false;
  std::move(operations.begin(), operations.end(), std::back_inserter(found->second.recorded));
  return true;
}

// --- what stands in the way ------------------------------------------------------------------------------------------

template <class InTheWay>
CUresult Captures::refuse_for(CUresult error, InTheWay in_the_way) {
  const std::lock_guard lock(mutex_);
  CUresult result = CUDA_SUCCESS;
  for (auto& [stream, capture] : captures_) {
    if (!in_the_way(*stream, capture)) continue;
    capture.valid = false;
    result = error;
  }
  return result;
}

CUresult Captures::use(const StreamPtr& stream, IfCapturing what) {
  if (what == IfCapturing::ignore) return CUDA_SUCCESS;
  if (what != IfCapturing::ask && stream->context.is_legacy(stream)) {
    return refuse_for(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                      [&](const Stream& other, const Capture&) { return blocks_legacy(other, stream->context); });
  }
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(stream);
  if (found == captures_.end()) return CUDA_SUCCESS;
  if (!found->second.valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (what != IfCapturing::refuse) return CUDA_SUCCESS;
  found->second.valid = false;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult Captures::use_all(const Context& context) {
  return refuse_for(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                    [&](const Stream& stream, const Capture&) { return &stream.context == &context; });
}

CUresult Captures::use_unsafely() {
  const CUstreamCaptureMode mine = thread_capture_mode();
  return refuse_for(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [&](const Stream&, const Capture& capture) {
    if (mine == CU_STREAM_CAPTURE_MODE_RELAXED || capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
    if (capture.beginner == std::this_thread::get_id()) return true;
    return mine == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
  });
}

void Captures::forget(const Context& context) {
  const std::lock_guard lock(mutex_);
  std::erase_if(captures_, [&](const auto& entry) { return &entry.first->context == &context; });
}

}  // namespace emucuda
