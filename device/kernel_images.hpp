// SPDX-License-Identifier: Apache-2.0
// The compiled kernels, which are part of the library: what kernels.hpp describes, for the GPUs that the build was
// asked for.
#pragma once

#include <cstddef>
#include <span>

namespace sluice::device {

/// A fat binary for cuModuleLoadData; empty if this build has no CUDA part.
std::span<const std::byte> cuda_kernels() noexcept;

/// A bundle of code objects for hipModuleLoadData; empty if this build has no HIP part.
std::span<const std::byte> hip_kernels() noexcept;

}  // namespace sluice::device
