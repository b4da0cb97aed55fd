// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sluice::base {

/// Tells this process from every other one, also from one that has its number in another name space: 64 random bits,
/// which stay where they are.
const std::uint64_t& process_token();

}  // namespace sluice::base
