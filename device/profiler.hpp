// SPDX-License-Identifier: Apache-2.0
// The profilers of GPUs' makers, which show what the host enqueues beside what the GPU does.
#pragma once

#include <string_view>

namespace sluice::device {

/// Makes slices and marks (base/trace.hpp) ranges and marks of NVIDIA's profilers, by NVTX, or of AMD's, by ROCTX. Only
/// the first call of the process that succeeds has an effect.
/// @param which  nvtx, roctx or none; auto: the profiler that this process runs under
/// @throws std::invalid_argument if nvtx or roctx is named and not found
void use_profiler(std::string_view which);

/// True if this build has NVTX.
bool has_nvtx() noexcept;

}  // namespace sluice::device
