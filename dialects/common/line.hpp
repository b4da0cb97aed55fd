// SPDX-License-Identifier: Apache-2.0
// The order of a stream, in which operations are started and waited for.
#pragma once

#include "dialects/common/operation.hpp"

#include <sluice/context.hpp>

#include <memory>
#include <optional>

namespace sluice::stream_mpi {

/// A stream of the host or of a GPU. One thread at a time.
class Line {
 public:
  Line() = default;
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  virtual ~Line() = default;

  /// The stream, if it is one of a GPU.
  virtual std::optional<Stream> gpu() const = 0;
  /// Before anything is changed for a start or a wait. @throws GpuError for a stream that takes no work now: it
  /// captures a graph, or has been given up and is a line of messages
  virtual void check() const {}
  /// Return at once. `wait` returns what could not be enqueued on a GPU's stream.
  virtual void start(OperationList operations) = 0;
  virtual void wait_all(OperationList operations) = 0;
  /// Blocks until all that was enqueued has run. Returns the first error that was met since the last call, as a code;
  /// 0: none.
  virtual int wait() = 0;
};

/// A line on a stream of the library's own; and one on the stream of a variable, a sluice_host_stream* or a stream of a
/// GPU, which is read at each use.
/// @throws Refused{kUnsupported} for a stream that cannot be driven here
std::unique_ptr<Line> make_host_line(const Context& context);
std::unique_ptr<Line> make_line(const Context& context, void* const* variable);

}  // namespace sluice::stream_mpi
