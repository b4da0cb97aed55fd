// SPDX-License-Identifier: Apache-2.0
// Copies of the program's buffers, for libraries on top of this one: whatever memory they lie in.
#pragma once

#include <sluice/export.hpp>

#include <cstddef>

namespace sluice::device {

/// True for an address in memory of a GPU whose driver this process uses. Any thread.
SLUICE_EXPORT bool in_gpu_memory(const void* at);

/// Copies now, between memory of the host and of GPUs, even while streams are parked. Any thread. @throws GpuError
SLUICE_EXPORT void copy_anywhere(void* to, const void* from, std::size_t bytes);

}  // namespace sluice::device
