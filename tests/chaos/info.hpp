// SPDX-License-Identifier: Apache-2.0
// The offer of the class of provider that is emulated.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>

#include "tests/layer/info.hpp"

namespace chaos {

inline constexpr const char* kProvider = "chaos";
inline constexpr std::uint64_t kCounterCaps = FI_TRIGGER | FI_RMA_EVENT;

/// fi_getinfo.
int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
             fi_info** info);

/// Describes the provider below; null if it is missing.
layer::Info info_below();

}  // namespace chaos
