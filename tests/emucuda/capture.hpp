// SPDX-License-Identifier: Apache-2.0
// Captures: operations of their streams are recorded, and not done. An operation that cannot be recorded invalidates
// them.
#pragma once

#include <map>
#include <mutex>
#include <thread>

#include "tests/emucuda/context.hpp"

namespace emucuda {

/// The recorded operations of a capture, in order.
struct Graph {
  Context& context;
  Operations operations;
};

/// The operations of a launch; the graph may be destroyed meanwhile.
struct GraphExec {
  explicit GraphExec(std::shared_ptr<const Graph> of) : graph(std::move(of)) {}

  const std::shared_ptr<const Graph> graph;
  std::mutex mutex;
  Mark last;  // the end of the last launch, which the next one waits for
};

/// How a call treats a stream that captures.
enum class IfCapturing {
  record,
  refuse,  // and the capture is invalid from then on
  ask,     // of the stream, which the call does not use: refused if the capture is invalid
  ignore
};

/// This thread's, of cuThreadExchangeStreamCaptureMode.
CUstreamCaptureMode& thread_capture_mode();

/// The active captures of all contexts.
class Captures {
 public:
  CUresult begin(const StreamPtr& stream, CUstreamCaptureMode mode);
  /// If this thread may end it. An invalid one ends without a graph.
  CUresult end(const StreamPtr& stream, std::shared_ptr<Graph>& graph);
  CUresult look(const StreamPtr& stream, CUstreamCaptureStatus& status, cuuint64_t* id) const;
  /// Takes the operations if the stream captures.
  bool record(const StreamPtr& stream, Operations& operations);

  // The reason for which a call is refused. Captures that the call violates become invalid.
  CUresult use(const StreamPtr& stream, IfCapturing what);
  /// All streams of a context at once.
  CUresult use_all(const Context& context);
  /// For the calls that CUDA names potentially unsafe: they would not be part of the graph, and may wait for recorded
  /// work.
  CUresult use_unsafely();

  /// Drops the captures of a context that ends.
  void forget(const Context& context);

 private:
  struct Capture {
    cuuint64_t id;  // never used twice
    CUstreamCaptureMode mode;
    std::thread::id beginner;
    bool valid = true;
    Operations recorded{};
  };
  template <class InTheWay>
  CUresult refuse_for(CUresult error, InTheWay in_the_way);

  mutable std::mutex mutex_;
  cuuint64_t last_id_ = 0;
  std::map<StreamPtr, Capture> captures_;
};

}  // namespace emucuda
