// SPDX-License-Identifier: Apache-2.0
// Captures: what their streams are given is recorded, and not done. What cannot be recorded makes them invalid.
#pragma once

#include <map>
#include <mutex>
#include <thread>

#include "tests/emucuda/context.hpp"

namespace emucuda {

/// What a capture has recorded, in order.
struct Graph {
  Context& context;
  Operations operations;
};

/// What a launch does, whatever has become of the graph.
struct GraphExec {
  explicit GraphExec(std::shared_ptr<const Graph> of) : graph(std::move(of)) {}

  const std::shared_ptr<const Graph> graph;
  std::mutex mutex;
  Mark last;  // the end of the last launch, which the next one waits for
};

/// What becomes of a call that uses a stream which captures.
enum class IfCapturing {
  record,
  refuse,  // and the capture is invalid from then on
  ask,     // of the stream, which the call does not use: refused if the capture is invalid
  ignore
};

/// This thread's, of cuThreadExchangeStreamCaptureMode.
CUstreamCaptureMode& thread_capture_mode();

/// Those that are under way, in all contexts.
class Captures {
 public:
  CUresult begin(const StreamPtr& stream, CUstreamCaptureMode mode);
  /// If this thread may end it. An invalid one ends without a graph.
  CUresult end(const StreamPtr& stream, std::shared_ptr<Graph>& graph);
  CUresult look(const StreamPtr& stream, CUstreamCaptureStatus& status, cuuint64_t* id) const;
  /// Takes the operations if the stream captures.
  bool record(const StreamPtr& stream, Operations& operations);

  // What stands in the way of a call. Captures for which there is an error are invalid from then on.
  CUresult use(const StreamPtr& stream, IfCapturing what);
  /// All streams of a context at once.
  CUresult use_all(const Context& context);
  /// What CUDA calls potentially unsafe: it would not be part of the graph, and may wait for what is not done now.
  CUresult use_unsafely();

  /// Those of a context that ends.
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
