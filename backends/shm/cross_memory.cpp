// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/cross_memory.hpp"

#include <cerrno>
#include <cstring>
#include <string>

namespace sluice::backends::shm {

int CrossMemory::copy(Call call, const std::byte* here, std::uint64_t offset, std::size_t bytes) const noexcept {
  std::uint64_t there = address + offset;
  while (bytes > 0) {  // the kernel may stop short
    const iovec local{const_cast<std::byte*>(here), bytes};
    const iovec remote{reinterpret_cast<void*>(there), bytes};
    const ssize_t copied = call(pid, &local, 1, &remote, 1, 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied <= 0) return copied == 0 ? kNothing : errno;
    here += copied;
    there += static_cast<std::uint64_t>(copied);
    bytes -= static_cast<std::size_t>(copied);
  }
  return 0;
}

bool CrossMemory::copy(Call call, const std::byte* here, std::uint64_t offset, std::size_t bytes,
                       device::Watch& watch) const {
  const int error = copy(call, here, offset, bytes);
  if (error == 0) return true;
  const std::string why = error == kNothing ? "nothing was copied" : std::strerror(error);
  // A process that has died is found out here before its socket tells (test: Kill.during_a_large_copy).
  watch.fail(error == ESRCH ? Code::peer_lost : Code::transport,
             "the kernel's copy between here and process " + std::to_string(pid) + " failed: " + why);
  return false;
}

}  // namespace sluice::backends::shm
