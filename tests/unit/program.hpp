// SPDX-License-Identifier: Apache-2.0
// A program whose output and end a test looks at.
#pragma once

#include "base/fd.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace sluice::tests {

/// How a program ended, and what it and all that it started have written.
struct Result {
  int code = -1;  ///< 128 + the signal, if one ended it
  std::string out;
  std::string err;
};

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline int lines(const std::string& text) { return static_cast<int>(std::count(text.begin(), text.end(), '\n')); }

/// A process that is forked to call `main`; its result is the exit code.
class Program {
 public:
  template <class Main>
  explicit Program(const Main& main) {
    auto [out, out_end] = make_pipe();
    auto [err, err_end] = make_pipe();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // of a test that hangs, and is killed, nothing is left
      for (const int number : {SIGINT, SIGHUP, SIGQUIT}) ::signal(number, SIG_DFL);  // background jobs ignore them
      ::dup2(out_end.get(), STDOUT_FILENO);
      ::dup2(err_end.get(), STDERR_FILENO);
      ::_exit(main());
    }
    out_ = std::move(out);
    err_ = std::move(err);
  }

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }

  /// Waits until that much was written to stdout.
  void read_bytes(int count) const {
    char byte = 0;
    for (int i = 0; i < count; ++i) ASSERT_EQ(::read(out_.get(), &byte, 1), 1);
  }

  /// Waits for a line on stdout.
  std::string read_line() const {
    std::string line;
    for (char byte = 0; ::read(out_.get(), &byte, 1) == 1 && byte != '\n';) line += byte;
    return line;
  }

  /// Reads what was written to stderr until that has all of `parts`, the program has ended, or the deadline.
  std::string read_errors_until(const std::vector<std::string>& parts,
                                std::chrono::steady_clock::time_point deadline) const {
    std::string text;
    std::array<char, 4096> part{};
    while (!std::ranges::all_of(parts, [&](const std::string& one) { return contains(text, one); })) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      pollfd ready{err_.get(), POLLIN, 0};
      if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) break;
      const auto bytes = ::read(err_.get(), part.data(), part.size());
      if (bytes <= 0) break;
      text.append(part.data(), static_cast<std::size_t>(bytes));
    }
    return text;
  }

  /// Waits for the end of the program and of everything that it started: the pipes end only then.
  Result result() {
    Result result;
    result.out = rest_of(out_);
    result.err = rest_of(err_);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    result.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return result;
  }

 private:
  static std::pair<base::Fd, base::Fd> make_pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    return {base::Fd(ends[0]), base::Fd(ends[1])};
  }

  // The programs of these tests write less to stderr than a pipe holds: one after the other is enough.
  static std::string rest_of(const base::Fd& pipe) {
    std::string text;
    std::array<char, 4096> part{};
    for (;;) {
      const auto bytes = ::read(pipe.get(), part.data(), part.size());
      if (bytes <= 0) return text;
      text.append(part.data(), static_cast<std::size_t>(bytes));
    }
  }

  pid_t pid_ = -1;
  base::Fd out_;
  base::Fd err_;
};

}  // namespace sluice::tests
