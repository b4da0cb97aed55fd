// SPDX-License-Identifier: Apache-2.0
#include "peers/bootstrap.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/text.hpp"

namespace sluice::runtime {

namespace {

// Linux lowers it to net.core.somaxconn.
constexpr int kBacklog = 4096;

std::pair<sockaddr_un, socklen_t> address_of(const std::string& job, Rank rank) {
  sockaddr_un address{AF_UNIX, {}};
  const std::string name = '\0' + ("sluice-" + job + "-" + std::to_string(rank));  // the 0 makes the name abstract
  if (name.size() > sizeof address.sun_path) throw std::invalid_argument("the job's name is too long: " + job);
  name.copy(address.sun_path, name.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())};
}

int new_socket() { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

void check_launch(const base::Env& env) {
  const bool half = (env.hosts_fd < 0) != (env.tcp_fd < 0);
  if (env.rank < 0 || env.rank >= env.size || env.job.empty() || env.listen_fd < 0 || half) {
    throw std::invalid_argument(
        "SLUICE_RANK, SLUICE_SIZE, SLUICE_JOB, SLUICE_LISTEN_FD, SLUICE_HOSTS_FD and SLUICE_TCP_FD do not fit "
        "together: only sluice-run sets them");
  }
  sockaddr_un name{};
  socklen_t length = sizeof(name);
  const auto [expected, expected_length] = address_of(env.job, env.rank);
  const int error = ::getsockname(env.listen_fd, reinterpret_cast<sockaddr*>(&name), &length);
  if (error != 0 || length != expected_length || std::memcmp(&name, &expected, length) != 0) {
    throw std::invalid_argument("SLUICE_LISTEN_FD=" + std::to_string(env.listen_fd) + " is not the socket of rank " +
                                std::to_string(env.rank) + ": was this program started by a rank of sluice-run?");
  }
}

// Close-on-exec: processes that the rank starts must not keep the socket open after the rank has ended.
base::Fd take_over(int inherited) {
  if (::fcntl(inherited, F_SETFD, FD_CLOEXEC) != 0) base::throw_not_opened("cannot take over the inherited socket");
  return base::Fd(inherited);
}

}  // namespace

int Place::here_among(int ranks) const noexcept {
  int count = 0;
  for (Rank other = 0; other < ranks; ++other) count += roster.same_host(rank, other) ? 1 : 0;
  return count;
}

std::vector<Place> threads(int ranks, std::string job) {
  constexpr std::size_t kEach = 2;  // the mailbox and the engine of a rank
  const std::size_t needed = kEach * static_cast<std::size_t>(ranks);
  if (!base::make_room_for_descriptors(needed)) {
    throw std::runtime_error(std::to_string(ranks) + " ranks in one process: " + base::lack_of_descriptors(needed));
  }
  if (job.empty()) job = new_job();
  std::vector<Place> places;
  for (Mailbox& mailbox : Mailbox::of_threads(ranks)) {
    const auto rank = static_cast<Rank>(places.size());
    places.push_back({rank, ranks, job, {}, {}, {}, std::move(mailbox)});
  }
  return places;
}

Place launched(const base::Env& env) {
  check_launch(env);
  Place place{env.rank, env.size, env.job, take_over(env.listen_fd)};
  if (env.hosts_fd < 0) return place;
  place.roster = Roster(take_over(env.hosts_fd), env.size);
  place.tcp_listener = take_over(env.tcp_fd);
  return place;
}

std::string new_job() {
  const auto halves = std::bit_cast<std::array<std::uint64_t, 2>>(new_secret());
  return base::hexadecimal(halves[0], 16) + base::hexadecimal(halves[1], 16);
}

Secret new_secret() {
  Secret random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    base::throw_not_opened("no random numbers");
  return random;
}

base::Fd listen_as(const std::string& job, Rank rank) {
  const auto [address, length] = address_of(job, rank);
  base::Fd socket = base::open_with_room(new_socket);
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    base::throw_not_opened("cannot listen as rank " + std::to_string(rank));
  }
  return socket;
}

base::Fd connect_to(const std::string& job, Rank peer) {
  const auto [address, length] = address_of(job, peer);
  base::Fd socket(new_socket());
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) return socket;
  const int error = errno;  // which closing must not change
  socket = base::Fd();
  errno = error;
  return socket;
}

ucred process_behind(const base::Fd& connection) noexcept {
  ucred process{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  socklen_t length = sizeof process;
  ::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &process, &length);
  return process;
}

bool trusted(const base::Fd& connection) { return process_behind(connection).uid == ::geteuid(); }

}  // namespace sluice::runtime
