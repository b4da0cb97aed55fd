// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of kernels.hpp, which are part of the library, for the GPUs that the build was configured for.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace sluice::device {

enum class Kernel { write, small_puts, few_puts, operate, acquire, put, begin_put, copy, end_put, wait, release };
inline constexpr std::array kKernelNames{"sluice_write",   "sluice_small_puts", "sluice_few_puts",  "sluice_operate",
                                         "sluice_acquire", "sluice_put",        "sluice_begin_put", "sluice_copy",
                                         "sluice_end_put", "sluice_wait",       "sluice_release"};

/// A fat binary for cuModuleLoadData; empty if this build has no CUDA part.
std::span<const std::byte> cuda_kernels() noexcept;

/// A bundle of code objects for hipModuleLoadData; empty if this build has no HIP part.
std::span<const std::byte> hip_kernels() noexcept;

}  // namespace sluice::device
