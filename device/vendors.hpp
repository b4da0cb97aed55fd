// SPDX-License-Identifier: Apache-2.0
// The drivers that this build has.
#pragma once

#include "device/driver.hpp"

namespace sluice::device {

inline constexpr const char* kCudaLibrary = "libcuda.so.1";
Driver& cuda_driver();
extern const char* const kHipLibrary;
Driver& hip_driver();

}  // namespace sluice::device
