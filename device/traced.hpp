// SPDX-License-Identifier: Apache-2.0
// Slices of the timeline (base/trace.hpp) on any kind of stream.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/trace.hpp"
#include "device/gpu.hpp"

namespace sluice::device {

/// A slice: the work of the lane from the constructor to the destructor. Made only if `trace::on()`. On a GPU's stream
/// the slice has the times at which the stream does the work: two functions of the host, before and behind it, read the
/// clock, unless only a profiler records it, which measures by itself. A slice inside another on a GPU's stream is left
/// out, except for its arrow.
class Traced {
 public:
  Traced(Lane lane, const char* name, const base::trace::Channel& channel, std::uint64_t epoch, std::uint64_t bytes,
         base::trace::Arrow arrow);
  /// Ends the slice of a GPU's stream. Gives the stream the gathered operations first. A slice that an exception leaves
  /// is never ended, and left out. @throws GpuError
  void over();

 private:
  GpuCall* call_ = nullptr;  // with the slice open
  std::optional<base::trace::Span> span_;
  std::optional<base::trace::Range> range_;  // of a GPU's stream, while the host enqueues
};

/// Runs `work`, which must hold copies, as a slice. Out of line, so that code without tracing stays small. A verb that
/// is not traced calls its work itself: a function object would cost it ten instructions.
template <class F>
[[gnu::noinline, gnu::cold]] void trace_slice(Lane lane, const char* name, const base::trace::Channel& channel,
                                              std::uint64_t epoch, std::uint64_t bytes, base::trace::Arrow arrow,
                                              F work) {
  Traced slice(lane, name, channel, epoch, bytes, arrow);
  work();
  slice.over();
}

template <class F>
void as_slice(Lane lane, const char* name, F work) {
  if (!base::trace::on()) [[likely]]
    return work();
  trace_slice(lane, name, {}, 0, 0, base::trace::Arrow::none, std::move(work));
}

/// Runs `work`, whose operations on a GPU's stream become a slice.
template <class F>
void traced(Stream stream, int gpu, const char* name, F work) {
  if (!base::trace::on()) [[likely]]
    return work();
  GpuCall call(stream, gpu);
  as_slice(Lane{nullptr, &call}, name, std::move(work));
}

}  // namespace sluice::device
