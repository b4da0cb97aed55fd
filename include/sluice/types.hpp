// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace sluice {

/// A rank of a context: 0 .. size-1.
using Rank = int;

/// What tells the channels between two ranks apart, inside a scope.
using Tag = std::uint32_t;

/// How long a host-blocking call may take.
using Timeout = std::chrono::nanoseconds;

/// "Whatever the context says": opening, committing and closing SLUICE_CONNECT_TIMEOUT, everything else SLUICE_TIMEOUT.
inline constexpr std::optional<Timeout> kContextTimeout{};

/// No limit of ours; a dead peer still ends the wait.
inline constexpr Timeout kForever = Timeout::max();

/// Where memory lives. Without a GPU, `pinned` and `device` mean host memory, and `describe()` says so.
enum class Space { host, pinned, device };

}  // namespace sluice
