// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace sluice {

/// The number of a rank in its context, from 0 to size - 1.
using Rank = int;

/// A number that tells the channels between two ranks apart, inside a context or a scope. Any value.
using Tag = std::uint32_t;

/// The longest time for which a call may block the host. 0: the call looks once and does not wait. Time in which the
/// process is stopped (SIGSTOP, a frozen container) does not count.
using Timeout = std::chrono::nanoseconds;

/// The context's own timeout: `connect_timeout()` for `wait_connected`, `commit` and `close`, `timeout()` for all other
/// calls.
inline constexpr std::optional<Timeout> kContextTimeout{};

/// No limit. A dead peer still ends the wait.
inline constexpr Timeout kForever = Timeout::max();

namespace detail {

/// Base of classes that are neither copied nor moved.
struct NonCopyable {
  NonCopyable() = default;
  NonCopyable(const NonCopyable&) = delete;
  NonCopyable& operator=(const NonCopyable&) = delete;
};

}  // namespace detail

/// A kind of memory. Without a GPU, `pinned` and `device` are host memory too, and `describe()` of a channel says so.
enum class Space {
  host,    ///< memory of the host
  pinned,  ///< memory of the host that the GPU's driver has registered
  device   ///< memory of a GPU
};

}  // namespace sluice
