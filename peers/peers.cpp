// SPDX-License-Identifier: Apache-2.0
#include "peers/peers.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/log.hpp"
#include "base/network.hpp"

namespace sluice::runtime {
namespace {

using base::Clock;

constexpr int kWatchAgain = 100;  // milliseconds
// Those that wait to be heard take no more descriptors than this; the others wait in the kernel.
constexpr std::size_t kMaxStrangers = 128;

short events(const base::Fd& fd, short wanted) {
  pollfd one{fd.get(), wanted, 0};
  return poll(&one, 1, 0) == 1 ? one.revents : short{0};
}

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
  if (!peer.process)
    peer.process = base::open_with_room([&] { return static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)); });
  if (peer.process) return (events(peer.process, POLLIN) & POLLIN) != 0;
  if (errno == ESRCH) return true;
  if (!base::lacks_descriptors(errno)) peer.pid = 0;  // a kernel that cannot
  return false;
}

/// There was no descriptor for its process: nothing tells when that ends.
bool unwatched(const Peer& peer) { return peer.in && peer.pid != 0 && !peer.process; }

/// Somebody closed it, also by dying; else it is the network that failed.
bool closed_by_peer(int error) { return error == 0 || error == EPIPE || error == ECONNRESET || error == ENOTCONN; }

bool is_due(Clock::time_point then) { return then != Clock::time_point::max() && Clock::now() >= then; }

/// Null: there is no link yet, or it works at once.
backends::PathFinder* paths_of(const Peer& peer) { return peer.link == nullptr ? nullptr : peer.link->paths; }

int milliseconds_until(Clock::time_point then) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(then - Clock::now()).count();
  return static_cast<int>(std::clamp<decltype(left)>(left, 0, 60'000));
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
  here(peer) ? connect_here(peer) : call(peer);
  if (!peer.out) return;
  if (!peer.greeted) peer.unsent.push_front(greeting());
  peer.greeted = true;
  flush(peer);
}

void Peers::connect_inside(Peer& peer) {
  LineEnd line = place_.mailbox.connect(peer.rank);
  if (!line) return lose(peer, "rank " + std::to_string(peer.rank) + " has ended, or never started");
  peer.out = Wire::inside(std::move(line));
}

void Peers::connect_here(Peer& peer) {
  if (place_.mailbox) return connect_inside(peer);
  base::Fd socket = connect_to(place_.job, peer.rank);
  if (!socket) {
    if (errno == ECONNREFUSED) return lose(peer, "rank " + std::to_string(peer.rank) + " has ended, or never started");
    if (base::lacks_descriptors(errno)) return starve(peer);
    if (errno != EAGAIN) complain(peer, errno);
    return;
  }
  if (!trusted(socket)) return lose(peer, "somebody else's process answers for rank " + std::to_string(peer.rank));
  peer.out = Wire::here(std::move(socket));
}

void Peers::starve(Peer& peer) {
  peer.starved = true;
  lack_ = true;
}

std::size_t Peers::lacking() const noexcept {
  constexpr std::size_t kPacket = 8;  // what may come with a packet
  std::size_t count = kPacket;
  for (const auto& [rank, peer] : peers_) {
    if (peer.lost || place_.mailbox) continue;
    count += (peer.out ? 0U : 1U) + (peer.in ? 0U : 1U) + (here(peer) && !peer.process ? 1U : 0U);
  }
  return count;
}

void Peers::give_up_starving(const std::string& why) {
  for (auto& [rank, peer] : peers_) {
    if (starves(peer)) lose(peer, "rank " + std::to_string(rank) + " cannot be reached: " + why);
  }
}

void Peers::complain(Peer& peer, int error) const {
  if (std::exchange(peer.complained, true)) return;
  base::log(base::LogLevel::warn, "rank " + std::to_string(place_.rank) + " cannot reach rank " +
                                      std::to_string(peer.rank) + " and tries on: " + std::strerror(error));
}

void Peers::call(Peer& peer) {
  const auto now = Clock::now();
  if (now < peer.next_call) return;
  if (peer.sought == Clock::time_point()) peer.sought = now;
  peer.next_call = now + kCallAgain;
  base::Fd socket = base::begin_connect(place_.roster.listener_of(peer.rank));
  if (!socket) return call_failed(peer, errno);
  base::keep_alive(socket, timeout_);
  peer.out = Wire::calling(std::move(socket), place_.roster.secret());
}

void Peers::call_failed(Peer& peer, int error) {
  const auto now = Clock::now();
  peer.out = Wire();
  peer.next_call = now + kCallPause;
  const std::string where =
      " at " + base::text_of(place_.roster.listener_of(peer.rank)) + " (SLUICE_INTERFACE there chooses the address)";
  if (error == ECONNREFUSED)
    return lose(peer, "rank " + std::to_string(peer.rank) + " has ended, or never started: nobody listens" + where);
  if (base::lacks_descriptors(error)) {
    peer.sought = now;  // that is not the peer's fault
    return starve(peer);
  }
  if (now - peer.sought >= timeout_) return lose(peer, " cannot be reached" + where, error == 0 ? ECONNRESET : error);
  if (error != 0) complain(peer, error);
}

/// Ends a call that the other host has not answered for too long. Once it has, the rank takes it when it gets to it.
void Peers::give_up_late_call(Peer& peer) {
  if (!peer.out.reached() && Clock::now() >= peer.next_call) call_failed(peer, ETIMEDOUT);
}

void Peers::send(Peer& peer, Packet packet) {
  if (peer.lost) return;
  peer.unsent.push_back(std::move(packet));
  reach(peer);
  flush(peer);
  if (!peer.unsent.empty()) audience_.unsent();
}

void Peers::flush(Peer& peer) {
  peer.stalled = false;
  while (peer.out && !peer.unsent.empty()) {
    switch (peer.out.send(peer.unsent.front().bytes, peer.unsent.front().fds)) {
      case Wire::Sent::yes: peer.unsent.pop_front(); break;
      case Wire::Sent::later: return give_up_late_call(peer);
      case Wire::Sent::starved:
        peer.stalled = true;
        if (base::lacks_descriptors(peer.out.error())) starve(peer);
        return;
      case Wire::Sent::over: return out_is_over(peer);
    }
  }
}

void Peers::out_is_over(Peer& peer) {
  const int error = peer.out.error();
  if (peer.out.reached() && !closed_by_peer(error)) return lose(peer, " cannot be reached any more", error);
  if (!peer.out.open()) return call_failed(peer, error);  // nothing was said yet, so nothing is lost
  // The peer has ended. What it said before that is still to be heard: `listen_to` finds the end.
  peer.unsent.clear();
  if (!peer.in) lose(peer, "rank " + std::to_string(peer.rank) + " has ended");
}

void Peers::flush() {
  for (auto& [rank, peer] : peers_) {
    if (!peer.out && peer.wanted) reach(peer);
    flush(peer);
  }
}

int Peers::prepare(std::vector<pollfd>& sockets) const {
  int patience = -1;
  const auto at_most = [&](int limit) {
    if (limit >= 0) patience = patience < 0 ? limit : std::min(patience, limit);
  };
  if (place_.listener) sockets.push_back({place_.listener.get(), POLLIN, 0});
  if (place_.tcp_listener && strangers_.size() < kMaxStrangers) {
    sockets.push_back({place_.tcp_listener.get(), POLLIN, 0});
  }
  for (const auto& stranger : strangers_) {
    if (stranger.wire.socket()) sockets.push_back({stranger.wire.socket().get(), POLLIN, 0});
    if (!stranger.wire.open()) at_most(milliseconds_until(stranger.until));
  }
  for (const auto& [rank, peer] : peers_) at_most(peer.lost ? -1 : prepare(peer, sockets));
  return patience;
}

int Peers::prepare(const Peer& peer, std::vector<pollfd>& sockets) const {
  const int patience = patience_with(peer, sockets);
  if (!peer.in || paths_of(peer) == nullptr || peer.tended == Clock::time_point::max()) return patience;
  const int until_tended = milliseconds_until(peer.tended);
  return patience < 0 ? until_tended : std::min(patience, until_tended);
}

/// Apart from its link.
int Peers::patience_with(const Peer& peer, std::vector<pollfd>& sockets) const {
  if (peer.in.socket()) sockets.push_back({peer.in.socket().get(), POLLIN, 0});
  if (peer.process) sockets.push_back({peer.process.get(), POLLIN, 0});
  const bool unsent = !peer.unsent.empty();
  if (peer.out.socket() && (unsent || !peer.in)) {
    const short wanted = peer.out.wanted(unsent && !peer.stalled);
    sockets.push_back({peer.out.socket().get(), static_cast<short>(wanted | (peer.in ? 0 : POLLRDHUP)), 0});
  }
  if (peer.stalled) return 1;
  if (!peer.out && peer.wanted) return here(peer) ? 1 : milliseconds_until(peer.next_call);
  if (peer.out && !peer.out.reached()) return milliseconds_until(peer.next_call);
  return unwatched(peer) ? kWatchAgain : -1;
}

bool Peers::serve() {
  lack_ = false;
  for (auto& [rank, peer] : peers_) peer.starved = false;
  hear_strangers();
  for (auto& [rank, peer] : peers_) hear(peer);
  for (auto& [rank, peer] : peers_) tend(peer);
  flush();
  accept();  // last: it may find no descriptor free
  hear_strangers();
  return !lack_;
}

void Peers::hear(Peer& peer) {
  if (peer.lost) return;
  const std::string name = "rank " + std::to_string(peer.rank);
  if (!peer.in) {
    if (peer.out && peer.out.open() && peer.out.hung_up()) lose(peer, name + " has ended");
    return;
  }
  const bool over = ended(peer);  // before listening: what it said last is heard
  try {
    listen_to(peer);
  } catch (const std::system_error&) {
    starve(peer);  // what it said waits; the others are heard
  }
  if (over) lose(peer, name + " has ended or died");
}

void Peers::accept() {
  if (place_.mailbox) {
    for (LineEnd& line : place_.mailbox.arrived()) strangers_.push_back({Wire::inside(std::move(line)), {}});
    return;
  }
  // Else a lack would be found where nobody waits.
  while ((events(place_.listener, POLLIN) & POLLIN) != 0) {
    base::Fd stranger = accept_one(place_.listener);
    if (!stranger) break;
    if (trusted(stranger)) strangers_.push_back({Wire::here(std::move(stranger)), {}});
  }
  accept_calls();
}

void Peers::accept_calls() {
  while (place_.tcp_listener && strangers_.size() < kMaxStrangers) {
    if ((events(place_.tcp_listener, POLLIN) & POLLIN) == 0) return;
    base::Fd stranger = accept_one(place_.tcp_listener);
    if (!stranger) return;
    base::keep_alive(stranger, timeout_);
    strangers_.push_back({Wire::called(std::move(stranger), place_.roster.secret()), Clock::now() + kSilence});
  }
}

/// One connection that waits, if any, and if there is a descriptor for it.
base::Fd Peers::accept_one(const base::Fd& listener) {
  base::Fd stranger = base::accept_one(listener);
  if (!stranger && base::lacks_descriptors(errno)) lack_ = true;
  return stranger;
}

void Peers::hear_strangers() {
  std::erase_if(strangers_, [this](Stranger& stranger) { return identify(stranger); });
}

/// True: the stranger is none any more, or to be forgotten.
bool Peers::identify(Stranger& stranger) {
  auto packet = stranger.wire.receive();  // a greeting carries no descriptors
  if (!packet) return !stranger.wire.open() && Clock::now() >= stranger.until;
  if (packet->closed) return true;
  Reader message(packet->bytes);
  if (message.get<Kind>() != Kind::greeting) return true;
  const auto rank = message.get<Rank>();
  if (rank < 0 || rank >= place_.size) return true;
  Peer& peer = at(rank);
  if (peer.in || peer.lost) return true;
  peer.in = std::move(stranger.wire);
  peer.pid = process_behind(peer.in.socket());
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
  tend(peer);
}

/// Hands on what the link has to say, and tells the audience once it is ready.
void Peers::tend(Peer& peer) {
  if (peer.lost || !peer.in) return;
  if (paths_of(peer) != nullptr && is_due(peer.tended)) {
    std::vector<backends::Blob> words;
    peer.tended = paths_of(peer)->tend(Clock::now(), words);
    for (const backends::Blob& word : words) send(peer, {Writer(Kind::path).blob(word).take(), {}});
  }
  if (peer.linked || (peer.link != nullptr && !peer.link->ready())) return;
  peer.linked = true;
  audience_.linked(peer);
}

/// The first that reaches the peer, in the order of the lower rank: both ends choose the same.
void Peers::choose_backend(Peer& peer, const std::vector<std::pair<std::string, backends::Blob>>& theirs) {
  const auto choose = [&](const std::string& name) {
    const auto named = [&](const auto& entry) { return entry.first == name; };
    const auto ours = std::find_if(transports_.begin(), transports_.end(), named);
    const auto address = std::find_if(theirs.begin(), theirs.end(), named);
    if (ours == transports_.end() || address == theirs.end()) return;
    if (peer.link == nullptr && ours->second->reaches(address->second, here(peer))) {
      peer.backend = name;
      peer.link = ours->second->connect(peer.rank, address->second, here(peer));
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
    auto packet = peer.in.receive();
    if (!packet) return;
    if (packet->closed) {
      if (!closed_by_peer(peer.in.error())) return lose(peer, " cannot be reached any more", peer.in.error());
      return lose(peer, "rank " + std::to_string(peer.rank) + " has ended or died");
    }
    Reader message(packet->bytes);
    const auto kind = message.get<Kind>();
    if (kind == Kind::path) {
      if (paths_of(peer) != nullptr) paths_of(peer)->heard(message.blob());
      peer.tended = {};
      tend(peer);
      continue;
    }
    audience_.said(peer, kind, message, std::move(packet->fds));
  }
}

void Peers::lose(Peer& peer, const std::string& how, int error) {
  lose(peer, "rank " + std::to_string(peer.rank) + how + ": " + std::strerror(error));
}

void Peers::lose(Peer& peer, const std::string& why) {
  if (peer.lost) return;
  peer.lost = true;
  peer.why_lost = why;
  peer.unsent.clear();
  peer.out = Wire();
  peer.in = Wire();
  peer.process = base::Fd();
  audience_.lost(peer);
}

void Peers::close() noexcept {
  for (auto& [rank, peer] : peers_) {
    peer.lost = true;
    peer.out = Wire();
    peer.in = Wire();
    peer.process = base::Fd();
  }
  strangers_.clear();
}

}  // namespace sluice::runtime
