// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/cross_memory.hpp"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace sluice::backends::shm {
namespace {

using Copy = decltype(&process_vm_readv);

bool copy(Copy one, const CrossMemory& place, std::byte* here, std::uint64_t offset, std::size_t left,
          device::Watch& watch) {
  std::uint64_t there = place.address + offset;
  while (left > 0) {  // the kernel may stop short
    const iovec local{here, left};
    const iovec remote{reinterpret_cast<void*>(there), left};
    const ssize_t copied = one(place.pid, &local, 1, &remote, 1, 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied <= 0) {
      const int error = copied == 0 ? 0 : errno;
      const std::string why = error == 0 ? "nothing was copied" : std::strerror(error);
      // A process that has died is found out here before its socket tells (test: Kill.during_a_large_copy).
      watch.fail(error == ESRCH ? Code::peer_lost : Code::transport,
                 "the kernel's copy between here and process " + std::to_string(place.pid) + " failed: " + why);
      return false;
    }
    here += copied;
    there += static_cast<std::uint64_t>(copied);
    left -= static_cast<std::size_t>(copied);
  }
  return true;
}

}  // namespace

bool CrossMemory::write(const std::byte* from, std::uint64_t offset, std::size_t bytes, device::Watch& watch) const {
  return copy(process_vm_writev, *this, const_cast<std::byte*>(from), offset, bytes, watch);
}

bool CrossMemory::read(std::byte* to, std::uint64_t offset, std::size_t bytes, device::Watch& watch) const {
  return copy(process_vm_readv, *this, to, offset, bytes, watch);
}

}  // namespace sluice::backends::shm
