// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/cross_memory.hpp"

#include <cerrno>
#include <cstring>
#include <string>

namespace sluice::backends::shm {

bool CrossMemory::copy(decltype(&process_vm_readv) call, const std::byte* here, std::uint64_t offset, std::size_t bytes,
                       device::Watch& watch) const {
  std::uint64_t there = address + offset;
  while (bytes > 0) {  // the kernel may stop short
    const iovec local{const_cast<std::byte*>(here), bytes};
    const iovec remote{reinterpret_cast<void*>(there), bytes};
    const ssize_t copied = call(pid, &local, 1, &remote, 1, 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied <= 0) {
      const int error = copied == 0 ? 0 : errno;
      const std::string why = error == 0 ? "nothing was copied" : std::strerror(error);
      // A process that has died is found out here before its socket tells (test: Kill.during_a_large_copy).
      watch.fail(error == ESRCH ? Code::peer_lost : Code::transport,
                 "the kernel's copy between here and process " + std::to_string(pid) + " failed: " + why);
      return false;
    }
    here += copied;
    there += static_cast<std::uint64_t>(copied);
    bytes -= static_cast<std::size_t>(copied);
  }
  return true;
}

}  // namespace sluice::backends::shm
