// SPDX-License-Identifier: Apache-2.0
#include "launch/status.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace sluice::runtime {
namespace {

constexpr int kAnswersWithinMs = 5000;

std::pair<sockaddr_un, socklen_t> address_of_status(pid_t launcher) {
  sockaddr_un address{AF_UNIX, {}};
  const std::string name = '\0' + ("sluice-run-" + std::to_string(launcher));  // the 0 makes the name abstract
  name.copy(address.sun_path, name.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())};
}

base::Fd status_socket() { return base::Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

ucred other_side(const base::Fd& socket) {
  ucred other{-1, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  socklen_t size = sizeof other;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &other, &size);
  return other;
}

bool ready_to_read(const base::Fd& socket, int limit_ms) {
  pollfd one{socket.get(), POLLIN, 0};
  return ::poll(&one, 1, limit_ms) > 0;
}

}  // namespace

StatusServer::StatusServer() : socket_(status_socket()) {
  constexpr int kBacklog = 8;
  const auto [address, length] = address_of_status(::getpid());
  if (socket_ && (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
                  ::listen(socket_.get(), kBacklog) != 0))
    socket_ = base::Fd();
}

void StatusServer::answer(const std::function<std::string()>& text) const {
  if (!socket_) return;
  while (const base::Fd asker{::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)}) {
    const uid_t user = other_side(asker).uid;
    if (user != 0 && user != ::geteuid()) continue;
    const std::string answer = text();
    // A table fits into the buffer of a socket. A process that asks and does not read gets a part.
    [[maybe_unused]] const auto sent = ::send(asker.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  }
}

std::string ask_status(pid_t launcher) {
  const base::Fd socket = status_socket();
  if (!socket) base::throw_not_opened("a socket");
  const auto [address, length] = address_of_status(launcher);
  const bool connected = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0;
  if (!connected || other_side(socket).pid != launcher)
    throw std::invalid_argument("--status: process " + std::to_string(launcher) + " is no sluice-run on this host");
  std::string answer;
  std::array<char, 4096> part{};
  while (ready_to_read(socket, kAnswersWithinMs)) {
    const auto bytes = ::read(socket.get(), part.data(), part.size());
    if (bytes <= 0) break;
    answer.append(part.data(), static_cast<std::size_t>(bytes));
  }
  if (answer.empty())
    throw std::runtime_error("process " + std::to_string(launcher) +
                             " does not answer: is it stopped, or another user's?");
  return answer;
}

}  // namespace sluice::runtime
