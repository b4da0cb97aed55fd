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

  /// Copies by `call`, process_vm_readv or process_vm_writev. Whole, or the watch has failed and false is returned.
  /// `offset`: from the place.
  bool copy(decltype(&process_vm_readv) call, const std::byte* here, std::uint64_t offset, std::size_t bytes,
            device::Watch& watch) const;
};

}  // namespace sluice::backends::shm
