// SPDX-License-Identifier: Apache-2.0
#include "runtime/peers.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/log.hpp"

namespace sluice::runtime {
namespace {

using base::seeded;

constexpr int kWatchAgain = 100;  // milliseconds

short events(const base::Fd& fd, short wanted) {
  pollfd one{fd.get(), wanted, 0};
  return poll(&one, 1, 0) == 1 ? one.revents : short{0};
}

bool hung_up(const base::Fd& socket) { return (events(socket, 0) & (POLLHUP | POLLERR)) != 0; }

bool lacks_descriptors(int error) { return error == EMFILE || error == ENFILE; }

/// Of the process at the other end; 0: our own, or one that this kernel does not show us.
pid_t process_behind(const base::Fd& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool known = getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  return known && peer.pid > 0 && peer.pid != getpid() ? peer.pid : 0;
}

/// The peer's process has ended, as far as this can be known.
bool ended(Peer& peer) {
  if (peer.pid == 0) return false;
  if (!peer.process) peer.process = base::Fd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  if (peer.process) return (events(peer.process, POLLIN) & POLLIN) != 0;
  if (errno == ESRCH) return !seeded("missing_process_lives");
  if (!lacks_descriptors(errno) || seeded("lack_ends_watching")) peer.pid = 0;  // a kernel that cannot
  return false;
}

/// There was no descriptor for its process: nothing tells when that ends.
bool unwatched(const Peer& peer) { return peer.in && peer.pid != 0 && !peer.process; }

/// A socket of the peer was closed, or has broken.
std::optional<base::Packet> receive(const base::Fd& socket) {
  try {
    return base::receive_packet(socket);
  } catch (const std::system_error& error) {
    if (lacks_descriptors(error.code().value())) throw;
    base::Packet packet;
    packet.closed = true;
    return packet;
  }
}

}  // namespace

Peer& Peers::at(Rank rank) {
  auto [it, added] = peers_.try_emplace(rank);
  if (added) it->second.rank = rank;
  return it->second;
}

Packet Peers::greeting() const {
  Writer writer(Kind::greeting);
  writer.put(place_.rank).put(static_cast<std::uint32_t>(transports_.size()));
  for (const auto& [name, transport] : transports_) writer.text(name).blob(transport->address());
  return {writer.take(), {}};
}

void Peers::reach(Peer& peer) {
  peer.wanted = true;
  if (!peer.lost && !peer.out) connect(peer);
}

void Peers::connect(Peer& peer) {
  peer.out = connect_to(place_.job, peer.rank);
  if (!peer.out) {
    if (errno == ECONNREFUSED) return lose(peer, "rank " + std::to_string(peer.rank) + " has ended, or never started");
    if (errno != EAGAIN && (!std::exchange(peer.complained, true) || seeded("complains_each_time"))) {
      base::log(base::LogLevel::warn, "rank " + std::to_string(place_.rank) + " cannot reach rank " +
                                          std::to_string(peer.rank) + " and tries on: " + std::strerror(errno));
    }
    return;
  }
  if (!trusted(peer.out)) return lose(peer, "somebody else's process answers for rank " + std::to_string(peer.rank));
  if (!peer.greeted) peer.unsent.push_front(greeting());
  peer.greeted = true;
  flush(peer);
}

void Peers::send(Peer& peer, Packet packet) {
  if (peer.lost) return;
  peer.unsent.push_back(std::move(packet));
  reach(peer);
  flush(peer);
  if (!peer.unsent.empty()) audience_.unsent();
}

void Peers::flush(Peer& peer) {
  try {
    peer.stalled = false;
    while (peer.out && !peer.unsent.empty()) {
      if (!base::send_packet(peer.out, peer.unsent.front().bytes, peer.unsent.front().fds)) return;
      peer.unsent.pop_front();
    }
  } catch (const std::system_error& error) {
    const int code = error.code().value();
    peer.stalled = code != EPIPE && code != ECONNRESET && code != ENOTCONN;
    if (peer.stalled) return;  // out of memory, or of descriptors under way: again a little later
    // The peer has ended. What it said before that is still to be heard: `listen_to` finds the end.
    peer.unsent.clear();
    if (!peer.in) lose(peer, "rank " + std::to_string(peer.rank) + " has ended");
  }
}

void Peers::flush() {
  for (auto& [rank, peer] : peers_) {
    if (!peer.out && peer.wanted) reach(peer);
    flush(peer);
  }
}

int Peers::prepare(std::vector<pollfd>& sockets) const {
  int patience = -1;
  sockets.push_back({place_.listener.get(), POLLIN, 0});
  for (const auto& stranger : strangers_) sockets.push_back({stranger.get(), POLLIN, 0});
  for (const auto& [rank, peer] : peers_) {
    if (peer.lost) continue;
    if (peer.in) sockets.push_back({peer.in.get(), POLLIN, 0});
    if (peer.process) sockets.push_back({peer.process.get(), POLLIN, 0});
    const bool unsent = !peer.unsent.empty();
    if (peer.stalled || (!peer.out && peer.wanted)) patience = 1;
    if (patience < 0 && unwatched(peer) && !seeded("lack_ends_watching")) patience = kWatchAgain;
    if (peer.out && (unsent || !peer.in)) {
      sockets.push_back({peer.out.get(), static_cast<short>(unsent && !peer.stalled ? POLLOUT : 0), 0});
    }
  }
  return patience;
}

std::string Peers::serve() {
  lack_.clear();
  hear_strangers();
  for (auto& [rank, peer] : peers_) hear(peer);
  flush();
  accept();  // last: it may find no descriptor free
  hear_strangers();
  return std::move(lack_);
}

void Peers::hear(Peer& peer) {
  if (peer.lost) return;
  const std::string name = "rank " + std::to_string(peer.rank);
  if (!peer.in) {
    if (peer.out && hung_up(peer.out)) lose(peer, name + " has ended");
    return;
  }
  const bool over = ended(peer);  // before listening: what it said last is heard
  try {
    listen_to(peer);
  } catch (const std::system_error& reason) {
    lack_ = reason.what();  // what it said waits; the others are heard
  }
  if (over && !seeded("death_unnoticed")) lose(peer, name + " has ended or died");
}

void Peers::accept() {
  while ((events(place_.listener, POLLIN) & POLLIN) != 0) {  // else a lack would be found where nobody waits
    base::Fd stranger(accept4(place_.listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!stranger && lacks_descriptors(errno))
      lack_ = std::string("accepting a peer's connection: ") + std::strerror(errno);
    if (!stranger) return;
    if (trusted(stranger)) strangers_.push_back(std::move(stranger));
  }
}

void Peers::hear_strangers() {
  std::erase_if(strangers_, [this](base::Fd& stranger) { return identify(stranger); });
}

bool Peers::identify(base::Fd& stranger) {
  auto packet = receive(stranger);  // a greeting carries no descriptors
  if (!packet) return false;
  if (packet->closed) return true;
  Reader message(packet->bytes);
  if (message.get<Kind>() != Kind::greeting) return true;
  const auto rank = message.get<Rank>();
  if (rank < 0 || rank >= place_.size) return true;
  Peer& peer = at(rank);
  peer.in = std::move(stranger);
  peer.pid = process_behind(peer.in);
  greet(peer, message);
  hear(peer);
  return true;
}

void Peers::greet(Peer& peer, Reader& greeting) {
  std::vector<std::pair<std::string, backends::Blob>> theirs;
  for (auto count = greeting.get<std::uint32_t>(); count > 0; --count) {
    std::string name = greeting.text();
    theirs.emplace_back(std::move(name), greeting.blob());
  }
  choose_backend(peer, theirs);
  reach(peer);
  audience_.linked(peer);
}

/// The first that reaches the peer, in the order of the lower rank: both ends choose the same.
void Peers::choose_backend(Peer& peer, const std::vector<std::pair<std::string, backends::Blob>>& theirs) {
  const auto choose = [&](const std::string& name) {
    const auto named = [&](const auto& entry) { return entry.first == name; };
    const auto ours = std::find_if(transports_.begin(), transports_.end(), named);
    const auto address = std::find_if(theirs.begin(), theirs.end(), named);
    if (ours == transports_.end() || address == theirs.end()) return;
    if (peer.link == nullptr && ours->second->reaches(address->second)) {
      peer.backend = name;
      peer.link = ours->second->connect(peer.rank, address->second);
    }
  };
  if (place_.rank <= peer.rank) {
    for (const auto& [name, transport] : transports_) choose(name);
  } else {
    for (const auto& [name, address] : theirs) choose(name);
  }
}

void Peers::listen_to(Peer& peer) {
  while (!peer.lost) {
    auto packet = receive(peer.in);
    if (!packet) return;
    if (packet->closed) {
      if (!seeded("death_unnoticed")) lose(peer, "rank " + std::to_string(peer.rank) + " has ended or died");
      return;
    }
    Reader message(packet->bytes);
    const auto kind = message.get<Kind>();
    audience_.said(peer, kind, message, std::move(packet->fds));
  }
}

void Peers::lose(Peer& peer, const std::string& why) {
  if (peer.lost) return;
  peer.lost = true;
  peer.why_lost = why;
  peer.unsent.clear();
  peer.out = base::Fd();
  peer.in = base::Fd();
  peer.process = base::Fd();
  audience_.lost(peer);
}

void Peers::close() noexcept {
  for (auto& [rank, peer] : peers_) {
    peer.lost = true;
    peer.out = base::Fd();
    peer.in = base::Fd();
    peer.process = base::Fd();
  }
  strangers_.clear();
}

}  // namespace sluice::runtime
