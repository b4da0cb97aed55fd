// SPDX-License-Identifier: Apache-2.0
#include "device/traced.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sluice::device {

using base::Clock;
using base::trace::Arrow;
using base::trace::Slice;

/// A slice whose times are taken in the order of a GPU's stream.
struct GpuSlice {
  Slice slice;
  std::vector<base::trace::ArrowAt> more;  // arrows
  bool again = false;                      // a graph replays it
};

namespace {

// Called by the driver, in the stream's order.
void note_begin(void* slice) { static_cast<GpuSlice*>(slice)->slice.begin = Clock::now(); }

void note_end(void* what) {
  auto* const ended = static_cast<GpuSlice*>(what);
  ended->slice.end = Clock::now();
  base::trace::add(ended->slice);
  for (const auto& arrow : ended->more) base::trace::add(arrow, ended->slice);
  if (!ended->again) delete ended;
}

}  // namespace

Traced::Traced(Lane lane, const char* name, const base::trace::Channel& channel, std::uint64_t epoch,
               std::uint64_t bytes, Arrow arrow) {
  if (lane.gpu == nullptr) {
    span_.emplace(name, channel, epoch, bytes, arrow);
    return;
  }
  range_.emplace(name, channel.label);
  if (!base::trace::recording()) return;
  GpuCall& call = *lane.gpu;
  const auto at = base::trace::arrow_of(arrow, channel, epoch);
  if (call.slice != nullptr) {
    if (arrow != Arrow::none) call.slice->more.push_back(at);
    return;
  }
  const std::string stream = std::to_string(reinterpret_cast<std::uintptr_t>(call.stream()));
  const std::string key = std::string(call.driver().name()) + ' ' + std::to_string(call.device()) + ' ' + stream;
  const auto track = base::trace::track_of(key, "GPU stream");
  auto slice = std::make_unique<GpuSlice>(GpuSlice{{name, channel.label, epoch, bytes, at, track}, {}, false});
  slice->again = call.driver().look_at(call.stream()).capture != 0;
  call.call(note_begin, slice.get());
  call.slice = slice.release();
  call_ = &call;
}

void Traced::over() {
  if (call_ == nullptr) return;
  call_->issue();
  call_->call(note_end, std::exchange(call_->slice, nullptr));
}

}  // namespace sluice::device
