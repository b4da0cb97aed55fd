// SPDX-License-Identifier: Apache-2.0
#include "peers/roster.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

namespace sluice::runtime {

Roster::Roster(const base::Fd& fd, int ranks) {
  const std::size_t bytes = sizeof(Secret) + static_cast<std::size_t>(ranks) * sizeof(Home);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes) {
    throw std::invalid_argument("SLUICE_HOSTS_FD=" + std::to_string(fd.get()) + " is no table of " +
                                std::to_string(ranks) + " ranks: only sluice-run sets it");
  }
  void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) base::throw_not_opened("cannot map the table of ranks");
  table_.reset(static_cast<const Secret*>(at),
               [bytes](const Secret* table) { ::munmap(const_cast<Secret*>(table), bytes); });
}

base::Fd Roster::write(const Secret& secret, std::span<const Home> homes) {
  base::Fd fd(::memfd_create("sluice-roster", MFD_CLOEXEC));
  if (!fd) base::throw_not_opened("no memory for the table of ranks");
  for (const auto part : {std::as_bytes(std::span(&secret, 1)), std::as_bytes(homes)}) {
    base::write_all(fd.get(), {reinterpret_cast<const char*>(part.data()), part.size()}, "the table of ranks");
  }
  return fd;
}

}  // namespace sluice::runtime
