// SPDX-License-Identifier: Apache-2.0
// Information on the provider, by the rules of cxi.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>

#include "tests/layer/info.hpp"

namespace emucxi {

inline constexpr std::size_t kInjectSize = 192;

/// fi_getinfo: refuses what cxi refuses, and what is not emulated.
int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
             fi_info** info);

/// Describes the provider below; null if it is missing.
layer::Info info_of_sockets();

}  // namespace emucxi
