// SPDX-License-Identifier: Apache-2.0
// Slices of the timeline (base/trace.hpp) on a stream, whatever it is.
#pragma once

#include <optional>

#include "base/trace.hpp"
#include "device/gpu.hpp"

namespace sluice::device {

/// What the lane does from its making until `over` is a slice. On a GPU's stream it lies where the stream comes to it:
/// two functions of the host, before and behind, look at the clock, unless only a profiler hears of it, which knows
/// that by itself. There a slice in another is not seen, only its arrow is.
class Traced {
 public:
  using Arrow = base::trace::Arrow;
  Traced(Lane lane, const char* name, const base::trace::Channel& channel = {}, std::uint64_t epoch = 0,
         std::uint64_t bytes = 0, Arrow arrow = Arrow::none) {
    if (base::trace::on()) [[unlikely]]
      begin(lane, name, channel, epoch, bytes, arrow);
  }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;
  /// What was left by an exception has no end, and is not seen.
  ~Traced() = default;

  /// @throws GpuError: all that was gathered is given to the stream first
  void over() {
    if (call_ != nullptr) [[unlikely]]
      end();
    span_.reset();
    range_.reset();
  }

 private:
  [[gnu::cold]] void begin(Lane lane, const char* name, const base::trace::Channel& channel, std::uint64_t epoch,
                           std::uint64_t bytes, Arrow arrow);
  [[gnu::cold]] void end();

  GpuCall* call_ = nullptr;  // with the slice open
  std::optional<base::trace::Span> span_;
  std::optional<base::trace::Range> range_;  // of a GPU's stream, while the host enqueues
};

/// `work`, which is to hold copies, as a slice. Out of line, so that who is not traced carries nothing of it.
template <class F>
[[gnu::noinline, gnu::cold]] void trace_slice(Lane lane, const char* name, const base::trace::Channel& channel,
                                              std::uint64_t epoch, std::uint64_t bytes, base::trace::Arrow arrow,
                                              F work) {
  Traced slice(lane, name, channel, epoch, bytes, arrow);
  work();
  slice.over();
}

/// What `work` gives to a GPU's stream is a slice.
template <class F>
void traced(Stream stream, int gpu, const char* name, F work) {
  if (!base::trace::on()) [[likely]]
    return work();
  GpuCall call(stream, gpu);
  Traced slice(Lane{nullptr, &call}, name);
  work();
  slice.over();
}

}  // namespace sluice::device
