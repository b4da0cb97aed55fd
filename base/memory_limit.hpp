// SPDX-License-Identifier: Apache-2.0
// Limits beyond which the kernel ends a process instead of refusing memory.
#pragma once

#include <cstddef>
#include <string>

namespace sluice::base {

/// Returns why this process cannot have `bytes` more of memory: the limits of its cgroup and of all above it (v1 and
/// v2), and their memory that cannot be reclaimed. Empty: no known limit forbids them.
/// @param root  for tests: folder before the paths of /proc and of mounts
std::string why_no_memory(std::size_t bytes, const std::string& root = {});

/// Returns why this process cannot have a file of this size, which would end it with SIGXFSZ (`ulimit -f`); empty: it
/// can.
std::string why_no_file(std::size_t bytes);

}  // namespace sluice::base
