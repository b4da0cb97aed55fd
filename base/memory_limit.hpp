// SPDX-License-Identifier: Apache-2.0
// Limits beyond which the kernel ends a process instead of refusing memory.
#pragma once

#include <cstddef>
#include <string>

namespace sluice::base {

/// Why this process cannot have `bytes` more of memory, by the limits of its cgroup and of all above it (v1 and v2),
/// less what cannot be reclaimed there. Empty: nothing is known that keeps it from them.
/// @param root  before the paths of /proc and of what is mounted; of a test
std::string why_no_memory(std::size_t bytes, const std::string& root = {});

/// Why this process cannot have a file of that size (`ulimit -f`), which would end it with SIGXFSZ; empty: it can.
std::string why_no_file(std::size_t bytes);

}  // namespace sluice::base
