// SPDX-License-Identifier: Apache-2.0
// A program's kernel behind a wait for any of several receivers: it notes what the wait has taken. Compiled for CUDA,
// for HIP, and for the host.
#pragma once

#include <sluice/device.hpp>

namespace sluice::test {

struct ArrivalsArgs {
  static constexpr const char* kKernel = "note_arrivals";
  struct Note {
    std::uint64_t index;
    std::uint64_t bytes;
    std::uint64_t sum;  ///< of the bytes
  };
  DeviceArrivals arrivals;
  std::uint64_t* noted;  ///< how many notes there are
  Note* notes;
};

/// By one thread. `find`: the address of a byte of the GPU's memory where the kernel runs.
SLUICE_DEVICE void note_arrivals(const ArrivalsArgs& args, auto find) {
  for (std::uint64_t i = 0; i < args.arrivals.size(); ++i) {
    const DeviceArrival& one = args.arrivals[i];
    const std::byte* const data = one.data == nullptr ? nullptr : find(one.data);
    std::uint64_t sum = 0;
    for (std::uint64_t at = 0; at < one.bytes; ++at) sum += static_cast<std::uint64_t>(data[at]);
    args.notes[(*args.noted)++] = {one.index, one.bytes, sum};
  }
}

}  // namespace sluice::test
