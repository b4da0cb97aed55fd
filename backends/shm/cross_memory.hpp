// SPDX-License-Identifier: Apache-2.0
// The kernel's copies between this process and a peer's memory that is not mapped here.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "device/gpu.hpp"

namespace sluice::backends::shm {

/// A place in another process. pid 0: it may not be reached.
struct CrossMemory {
  pid_t pid = 0;
  std::uint64_t address = 0;

  using Call = decltype(&process_vm_readv);
  /// Copies by `call`, process_vm_readv or process_vm_writev. Returns 0; or why not all was copied: the number of an
  /// error, or kNothing. `offset`: from the place.
  int copy(Call call, const std::byte* here, std::uint64_t offset, std::size_t bytes) const noexcept;
  static constexpr int kNothing = -1;  ///< the kernel copied nothing, and gave no reason
  /// Whole, or the watch has failed and false is returned.
  bool copy(Call call, const std::byte* here, std::uint64_t offset, std::size_t bytes, device::Watch& watch) const;
};

}  // namespace sluice::backends::shm
