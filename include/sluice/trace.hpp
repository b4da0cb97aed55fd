// SPDX-License-Identifier: Apache-2.0
// Slices of the program's own in the timeline of SLUICE_TRACE, and in a profiler.
#pragma once

#include <sluice/export.hpp>

#include <cstdint>
#include <string_view>

namespace sluice {

/// True if this process writes a timeline: SLUICE_TRACE named a file when its first context was made. Any thread.
SLUICE_EXPORT bool tracing() noexcept;

/// A named slice of the timeline, from its construction to its destruction, which the same thread must do. It lies on
/// the track of that thread; inside a callable of a HostStream, on the track of the stream. Slices of one track must be
/// nested. A profiler that SLUICE_RANGES selects gets the slice as a range of the thread. Without a timeline and a
/// profiler a Span costs one test of a flag.
class SLUICE_EXPORT Span {
 public:
  /// `name` is copied.
  explicit Span(std::string_view name);
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span();

 private:
  const char* name_ = nullptr;  // null: nothing is recorded
  std::uint32_t track_ = 0;
  std::int64_t began_ = 0;  // ns, of the steady clock
};

}  // namespace sluice
