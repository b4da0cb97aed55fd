// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

namespace sluice::base {

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
