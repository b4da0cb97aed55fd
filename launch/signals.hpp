// SPDX-License-Identifier: Apache-2.0
// How sluice-run takes signals.
#pragma once

#include "base/fd.hpp"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <optional>
#include <string>

namespace sluice::runtime {

/// "SIGTERM", or "signal 34" where the signal has no name.
inline std::string name_of_signal(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : std::string("SIG") + name;
}

/// "15 (SIGTERM)"
inline std::string signal_text(int signal) {
  return std::to_string(signal) + (::sigabbrev_np(signal) == nullptr ? "" : " (" + name_of_signal(signal) + ")");
}

/// While it lives, the signals that sluice-run passes on arrive at a descriptor.
class Signals {
 public:
  Signals() {
    sigset_t taken;
    ::sigemptyset(&taken);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD})
      ::sigaddset(&taken, signal);
    ::pthread_sigmask(SIG_BLOCK, &taken, &before_);
    // A parent that ignores SIGCHLD makes its children ignore it: then no ended child could be waited for.
    const struct sigaction standard {};  // its handler is SIG_DFL
    ::sigaction(SIGCHLD, &standard, &child_before_);
    arriving_ = base::Fd(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!arriving_) base::throw_not_opened("signalfd");
    // Processes that a rank leaves behind become children of this process.
    ::prctl(PR_GET_CHILD_SUBREAPER, &reaper_before_);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() {
    ::prctl(PR_SET_CHILD_SUBREAPER, reaper_before_);
    ::sigaction(SIGCHLD, &child_before_, nullptr);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  const base::Fd& arriving() const noexcept { return arriving_; }
  const sigset_t& before() const noexcept { return before_; }

  /// The next one; nothing: none now.
  std::optional<signalfd_siginfo> next() const {
    signalfd_siginfo signal{};
    return ::read(arriving_.get(), &signal, sizeof signal) == sizeof signal ? std::optional(signal) : std::nullopt;
  }

 private:
  sigset_t before_{};
  struct sigaction child_before_ {};
  int reaper_before_ = 0;
  base::Fd arriving_;
};

}  // namespace sluice::runtime
