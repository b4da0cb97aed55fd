// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/keys.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace chaos {
namespace {

int open_file() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

/// A lock on `count` keys from this one on.
struct flock lock_of(short type, std::uint16_t port, std::uint64_t key, off_t count = 1) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = (off_t{port} << Keys::kBits) + static_cast<off_t>(key);
  lock.l_len = count;
  return lock;
}

int set(int file, const struct flock& lock) { return ::fcntl(file, F_OFD_SETLK, &lock) == 0 ? 0 : -errno; }

}  // namespace

Keys::Keys() : ours_(open_file()), looks_(open_file()) {}

Keys::~Keys() {
  ::close(ours_);
  ::close(looks_);
}

int Keys::open(std::uint64_t key) {
  keys_.insert(key);
  for (const std::uint16_t port : ports_) {
    if (const int bad = set(ours_, lock_of(F_RDLCK, port, key))) return bad;
  }
  return 0;
}

void Keys::close(std::uint64_t key) {
  keys_.erase(key);
  for (const std::uint16_t port : ports_) set(ours_, lock_of(F_UNLCK, port, key));
}

int Keys::add_port(std::uint16_t port) {
  ports_.insert(port);
  for (const std::uint64_t key : keys_) {
    if (const int bad = set(ours_, lock_of(F_RDLCK, port, key))) return bad;
  }
  return 0;
}

void Keys::remove_port(std::uint16_t port) {
  ports_.erase(port);
  set(ours_, lock_of(F_UNLCK, port, 0, off_t{1} << kBits));
}

bool Keys::is_open(std::uint16_t port, std::uint64_t key) const {
  if (key >> kBits) return false;
  struct flock lock = lock_of(F_WRLCK, port, key);
  return ::fcntl(looks_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace chaos
