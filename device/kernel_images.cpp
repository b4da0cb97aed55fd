// SPDX-License-Identifier: Apache-2.0
// No kernels, for parts that this build does not have; a part that it has brings a source of its own
// (cmake/SluiceEmbed.cmake).
#include "device/kernel_images.hpp"

namespace sluice::device {

#ifndef SLUICE_HAS_CUDA
std::span<const std::byte> cuda_kernels() noexcept { return {}; }
#endif

#ifndef SLUICE_HAS_HIP
std::span<const std::byte> hip_kernels() noexcept { return {}; }
#endif

}  // namespace sluice::device
