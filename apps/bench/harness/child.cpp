// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/child.hpp"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace bench {
namespace {

using std::chrono::milliseconds;

// Shorter than the time after which the peer of this rank stops to wait for it.
constexpr milliseconds kMaxSilence{30000};
constexpr milliseconds kTimeToEnd{5000};

void check(int error, const std::string& what) {
  if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

// Appends the next bytes to `text`. Returns false at the end of the input, or if no byte arrives within `limit`.
bool read_some(int socket, milliseconds limit, std::string& text) {
  pollfd ready{socket, POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(limit.count())) <= 0) return false;
  std::array<char, 4096> part;
  const ssize_t bytes = ::recv(socket, part.data(), part.size(), 0);
  if (bytes > 0) text.append(part.data(), static_cast<std::size_t>(bytes));
  return bytes > 0;
}

}  // namespace

Child::Child(const std::vector<std::string>& command) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) check(errno, "socketpair");
  socket_ = ends[0];
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO})
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], standard);
  const int error = ::posix_spawn(&process_, arguments.front(), &actions, nullptr, arguments.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) ::close(socket_);
  check(error, command.front());
}

Child::~Child() {
  ::shutdown(socket_, SHUT_WR);
  std::string ignored;
  while (read_some(socket_, kTimeToEnd, ignored)) {
  }
  ::close(socket_);
  if (process_ >= 0) end();
}

std::string Child::end() {
  ::kill(process_, SIGKILL);  // no effect on a process that has ended
  int status = 0;
  ::waitpid(std::exchange(process_, -1), &status, 0);
  if (WIFSIGNALED(status)) return "by signal " + std::to_string(WTERMSIG(status));
  return "with exit code " + std::to_string(WEXITSTATUS(status));
}

void Child::write_line(const std::string& line) const {
  const std::string text = line + "\n";
  // A line fits into the socket's buffer. If the process has ended, the next read_line reports it.
  static_cast<void>(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL));
}

std::string Child::read_line() {
  for (;;) {
    if (const auto end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    const auto began = std::chrono::steady_clock::now();
    if (read_some(socket_, kMaxSilence, received_)) continue;
    if (std::chrono::steady_clock::now() - began >= kMaxSilence) throw std::runtime_error("it said nothing for 30 s");
    throw std::runtime_error("it has ended, " + end());
  }
}

}  // namespace bench
