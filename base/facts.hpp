// SPDX-License-Identifier: Apache-2.0
// Facts about a device or a library, by name, in the order in which they are shown.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace sluice::base {

/// Without a value: unknown.
using Fact = std::variant<std::monostate, bool, std::uint64_t, std::string>;
using Facts = std::vector<std::pair<std::string, Fact>>;

}  // namespace sluice::base
