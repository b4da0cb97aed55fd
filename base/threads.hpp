// SPDX-License-Identifier: Apache-2.0
// Starting threads of ours.
#pragma once

#include <signal.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace sluice::base {

/// Returns the error for a thread that could not be started: its purpose `whose`, and the lacking resource.
/// @param error  errno of the start
inline std::system_error no_thread(const std::string& whose, int error) {
  std::string what = "no thread for " + whose;
  // The C library falls back to clone by itself where the kernel says ENOSYS.
  if (error == EPERM)
    what += ", as the filter of system calls of this container denies clone3 (it may allow it, or answer ENOSYS)";
  return {error, std::generic_category(), what};
}

/// Blocks signals while it lives, so that a new thread inherits that: a program's handlers never run in a thread of
/// ours. Faults are not blocked, because they would end the process without a report of a sanitizer or a debugger.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace sluice::base
