// SPDX-License-Identifier: Apache-2.0
// Memory that peers read and change: mapped where it can be, else by the kernel's cross-memory copy.
#pragma once

#include "backends/access.hpp"
#include "backends/shm/cross_memory.hpp"
#include "backends/shm/keys.hpp"

namespace sluice::backends::shm {

Offer offer_memory(const device::Extent& memory, Sent& sent);

/// The kernel copies, and knows no atomics.
class KernelAccess final : public StreamAccess {
 public:
  KernelAccess(const device::Extent& local, CrossMemory offered, std::size_t bytes, device::Watch& watch)
      : StreamAccess({.local = local.bytes, .offered = bytes, .no_atomics = "it cannot be mapped"}, watch,
                     "shm: by the kernel's cross-memory copy, since the peer's memory cannot be mapped; no atomics"),
        local_(local), offered_(offered) {}

 private:
  void carry_out(device::Lane lane, const Request& request) override;

  device::Extent local_;
  CrossMemory offered_;
};

/// @throws std::runtime_error for memory that can be neither mapped nor copied by the kernel. `pid`: the peer's, 0 if
/// the kernel does not let this process reach into it.
std::unique_ptr<Access> open_access(const device::Extent& local, pid_t pid, Mappings& mappings, device::Watch& watch,
                                    Key key);

}  // namespace sluice::backends::shm
