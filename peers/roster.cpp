// SPDX-License-Identifier: Apache-2.0
#include "peers/roster.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <system_error>

namespace sluice::runtime {
namespace {

[[noreturn]] void fail_at_table(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

void write_part(const base::Fd& fd, std::span<const std::byte> part) {
  base::write_all(fd.get(), {reinterpret_cast<const char*>(part.data()), part.size()}, "the table of ranks");
}

}  // namespace

Roster::Roster(const base::Fd& fd, int ranks) {
  const std::size_t bytes = bytes_for(static_cast<std::size_t>(ranks));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes) {
    throw std::invalid_argument("SLUICE_HOSTS_FD=" + std::to_string(fd.get()) + " is no table of " +
                                std::to_string(ranks) + " ranks: only sluice-run sets it");
  }
  void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) fail_at_table("cannot map the table of ranks");
  table_.reset(static_cast<const Table*>(at),
               [bytes](const Table* table) { ::munmap(const_cast<Table*>(table), bytes); });
}

base::Fd Roster::write(const Secret& secret, std::span<const Home> homes) {
  base::Fd fd(::memfd_create("sluice-roster", MFD_CLOEXEC));
  if (!fd) fail_at_table("no memory for the table of ranks");
  const Table table{secret, homes.size()};
  write_part(fd, std::as_bytes(std::span(&table, 1)));
  write_part(fd, std::as_bytes(homes));
  return fd;
}

bool Roster::same_host(Rank one, Rank other) const noexcept {
  return !several_hosts() || home(one).host == home(other).host;
}

}  // namespace sluice::runtime
