// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_call.hpp"

#include "base/seeded.hpp"
#include "device/reach.hpp"

namespace sluice::device {

GpuCall::GpuCall(Stream stream)
    : driver_(*device::driver(stream.kind())), stream_(stream.handle()), device_(driver_.device_of(stream_)),
      current_(driver_, device_) {}

void GpuCall::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  // Writes may leave behind later copies, in one operation with those of other channels; a wait must come before.
  if (waits_ && !base::seeded("copy_before_wait")) issue();
  if (!any_in_parts()) return driver_.copy(stream_, to, from, bytes);
  for_each_part(to, bytes, [&](std::size_t at, std::size_t part) {
    for_each_part(from + at, part, [&](std::size_t inner, std::size_t some) {
      driver_.copy(stream_, to + at + inner, from + at + inner, some);
    });
  });
}

void GpuCall::issue() {
  if (count_ != 0) driver_.operate(stream_, {ops_.data(), count_});
  count_ = 0;
  waits_ = false;
}

}  // namespace sluice::device
