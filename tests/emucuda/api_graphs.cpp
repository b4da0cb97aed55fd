// SPDX-License-Identifier: Apache-2.0
// Stream capture, and graphs: they come from captures only, and cannot be looked into or changed.
#include "tests/emucuda/driver.hpp"

using namespace emucuda;

namespace {

bool is_mode(CUstreamCaptureMode mode) {
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
         mode == CU_STREAM_CAPTURE_MODE_RELAXED;
}

}  // namespace

extern "C" {

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  StreamPtr stream;
  if (const CUresult error = use_stream(handle, stream, IfCapturing::ignore)) return error;
  return is_mode(mode) ? driver().captures.begin(stream, mode) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph_handle) {
  StreamPtr stream;
  std::shared_ptr<Graph> graph;
  if (const CUresult error = use_stream(handle, stream, IfCapturing::ignore)) return error;
  if (!graph_handle) return CUDA_ERROR_INVALID_VALUE;
  *graph_handle = nullptr;
  if (const CUresult error = driver().captures.end(stream, graph)) return error;
  driver().graphs.add(graph, graph_handle);
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return cuStreamGetCaptureInfo(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                const CUgraphNode** nodes, const CUgraphEdgeData** edges,
                                size_t* count) {  // NOLINT(readability-non-const-parameter): CUDA's
  StreamPtr stream;
  if (const CUresult error = use_stream(handle, stream, IfCapturing::ignore)) return error;
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  if (graph || nodes || edges || count) return CUDA_ERROR_NOT_SUPPORTED;
  return driver().captures.look(stream, *status, id);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** nodes, size_t* count) {
  return cuStreamGetCaptureInfo(handle, status, id, graph, nodes, nullptr, count);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (const CUresult error = use_driver()) return error;
  if (!mode || !is_mode(*mode)) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, thread_capture_mode());
  return CUDA_SUCCESS;
}

/// Without their handles, of which there are none.
CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  if (const CUresult error = use_driver()) return error;
  const auto graph = driver().graphs.find(handle);
  if (!graph || !count) return CUDA_ERROR_INVALID_VALUE;
  if (nodes) return CUDA_ERROR_NOT_SUPPORTED;
  *count = graph->operations.size();
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
  if (const CUresult error = use_driver()) return error;
  return driver().graphs.take(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph handle, unsigned long long flags) {
  constexpr unsigned long long kKnown =
      CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if (const CUresult error = use_driver()) return error;
  const auto graph = driver().graphs.find(handle);
  if (const CUresult error = driver().captures.use_unsafely()) return error;
  if (!exec || !graph || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  driver().graph_execs.add(std::make_shared<GraphExec>(graph), exec);
  return CUDA_SUCCESS;
}

/// A stream that captures records what the graph holds, as a graph of its own.
CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  StreamPtr stream;
  if (const CUresult error = use_stream(stream_handle, stream)) return error;
  const auto exec = driver().graph_execs.find(handle);
  if (!exec || &exec->graph->context != &stream->context) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(exec->mutex);
  const Mark mark = stream->context.submit(stream, exec->graph->operations, exec->last);
  if (mark.stream) exec->last = mark;
  return CUDA_SUCCESS;
}

/// Earlier launches still complete.
CUresult cuGraphExecDestroy(CUgraphExec handle) {
  if (const CUresult error = use_driver()) return error;
  if (const CUresult error = driver().captures.use_unsafely()) return error;
  return driver().graph_execs.take(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
}
