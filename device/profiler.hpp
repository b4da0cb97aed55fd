// SPDX-License-Identifier: Apache-2.0
// The profilers of GPUs' makers, which show what the host enqueues beside what the GPU does.
#pragma once

#include <string_view>

namespace sluice::device {

/// From now on slices and marks (base/trace.hpp) are ranges and marks of NVIDIA's profilers, by NVTX, or of AMD's, by
/// ROCTX. Once that has been decided, later calls of the process do nothing.
/// @param which  nvtx, roctx or none; auto: those of the profiler that this process runs under
/// @throws std::invalid_argument where nvtx or roctx is named and is not there
void use_profiler(std::string_view which);

/// Whether this build knows NVTX.
bool has_nvtx() noexcept;

}  // namespace sluice::device
