// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/shared_pages.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace bench {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::generic_category().message(errno));
}

std::byte* map(int file, std::size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  if (memory == MAP_FAILED) fail("cannot map " + std::to_string(bytes) + " bytes of shared memory");
  return static_cast<std::byte*>(memory);
}

int make_file(std::size_t bytes) {
  const int file = ::memfd_create("sluice-bench", MFD_CLOEXEC);
  if (file < 0) fail("memfd_create");
  if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) fail("ftruncate of shared memory");
  return file;
}

std::byte* map_theirs(const SharedPages::Place& where, std::size_t bytes) {
  const std::string path = "/proc/" + std::to_string(where.process) + "/fd/" + std::to_string(where.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) fail("cannot open the peer's memory " + path);
  std::byte* const memory = map(file, bytes);
  ::close(file);
  return memory;
}

}  // namespace

SharedPages::SharedPages(std::size_t bytes, const Exchange& exchange) : bytes_(bytes) {
  const int file = make_file(bytes);
  mine_ = map(file, bytes);
  const Place mine{::getpid(), file, mine_};
  const Place theirs = exchange(mine);
  mapped_theirs_ = theirs.process != ::getpid();
  theirs_ = mapped_theirs_ ? map_theirs(theirs, bytes) : theirs.memory;
  exchange(mine);  // returns when the peer has opened the file
  ::close(file);
}

SharedPages::~SharedPages() {
  if (mapped_theirs_) ::munmap(theirs_, bytes_);
  ::munmap(mine_, bytes_);
}

}  // namespace bench
