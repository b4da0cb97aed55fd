// SPDX-License-Identifier: Apache-2.0
// Messages in the order of a GPU's stream: a host stream of the library's own carries them out.
#pragma once

#include "dialects/common/line.hpp"

#include <sluice/context.hpp>

#include <memory>

namespace sluice::stream_mpi {

/// The GPU's stream signals the host stream where a message starts, and where it is waited for, and waits for an
/// answer there. So a send needs its buffer no earlier, and the host knows the size of what was received when it copies
/// that to a buffer in the GPU's memory.
/// @throws Error{Code::unsupported} without a driver for the stream; device::GpuError
std::unique_ptr<Line> make_gpu_line(const Context& context, Stream stream);

}  // namespace sluice::stream_mpi
