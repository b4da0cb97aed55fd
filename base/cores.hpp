// SPDX-License-Identifier: Apache-2.0
// The cores that this process may use. A core here is what the kernel numbers: one hardware thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sluice::base {

struct Cores {
  std::vector<int> mask;        ///< of the affinity mask; the hardware threads of one core follow each other
  std::optional<double> quota;  ///< how many cores the cgroups give time for (v1 and v2); nothing: no limit
};

/// Returns the cores of the calling thread.
/// @param root  for tests: folder before the paths of /proc, /sys and of mounts; the mask is always the thread's own
Cores cores_here(const std::string& root = {});

/// Binds the calling thread, and what it starts, to these cores. Allocates nothing, so it may run after `fork`.
/// @return false if the kernel refuses
bool bind_to(const std::vector<unsigned long>& mask) noexcept;

/// Returns the mask for `bind_to`.
std::vector<unsigned long> mask_of(const std::vector<int>& cores);

}  // namespace sluice::base
