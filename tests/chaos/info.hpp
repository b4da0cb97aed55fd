// SPDX-License-Identifier: Apache-2.0
// What can be had of the class that is played.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>

namespace chaos {

inline constexpr const char* kProvider = "chaos";
inline constexpr std::uint64_t kCounterCaps = FI_TRIGGER | FI_RMA_EVENT;

/// fi_getinfo.
int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
             fi_info** info);

/// Of the provider below, to be freed with fi_freeinfo; null if it is not there.
fi_info* info_below();

}  // namespace chaos
