// SPDX-License-Identifier: Apache-2.0
#include "base/threads.hpp"

#include <cerrno>

namespace sluice::base {

std::system_error no_thread(const std::string& whose, int error) {
  std::string what = "no thread for " + whose;
  // The C library falls back to clone by itself where the kernel says ENOSYS.
  if (error == EPERM)
    what += ", as the filter of system calls of this container denies clone3 (it may allow it, or answer ENOSYS)";
  return {error, std::generic_category(), what};
}

}  // namespace sluice::base
