// SPDX-License-Identifier: Apache-2.0
// Drivers that cannot be used, as the environment sets it.
#pragma once

#include "tests/emucuda/cuda_api.hpp"

namespace emucuda {

/// EMUCUDA_VERSION. A driver has one before cuInit.
int version();
/// EMUCUDA_INIT: what cuInit returns.
CUresult start();

}  // namespace emucuda
