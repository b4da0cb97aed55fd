// SPDX-License-Identifier: Apache-2.0
// A program's own pieces in the timeline that SLUICE_TRACE asks for, and in what a profiler shows.
#pragma once

#include <sluice/export.hpp>

#include <cstdint>
#include <string_view>

namespace sluice {

/// Whether this process writes a timeline: SLUICE_TRACE named a file when its first context was made.
SLUICE_EXPORT bool tracing() noexcept;

/// A named slice of the timeline, from its making to its end, on the track of the thread that makes and ends it; inside
/// of a HostStream's work on that of the stream. Slices of a track lie one in another. A profiler that SLUICE_RANGES
/// finds hears of it as a range of the thread. Where there is neither timeline nor profiler it costs one look at a
/// flag.
class SLUICE_EXPORT Span {
 public:
  explicit Span(std::string_view name);
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span();

 private:
  const char* name_ = nullptr;  // none: nothing is recorded
  std::uint32_t track_ = 0;
  std::int64_t began_ = 0;  // ns, of the steady clock
};

}  // namespace sluice
