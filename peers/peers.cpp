// SPDX-License-Identifier: Apache-2.0
#include "peers/peers.hpp"

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

constexpr std::chrono::milliseconds kWatchAgain{100};
// Pending connections take no more descriptors than this; the others wait in the kernel.
constexpr std::size_t kMaxPending = 128;

/// True if the peer's process is known to have ended.
bool ended(Peer& peer) {
  if (peer.pid == 0) return false;
  if (!peer.process)
    peer.process = base::open_with_room([&] { return static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)); });
  if (peer.process) return (poll_one(peer.process, POLLIN) & POLLIN) != 0;
  if (errno == ESRCH) return true;
  if (!base::lacks_descriptors(errno)) peer.pid = 0;  // this kernel cannot watch processes
  return false;
}

constexpr const char* kEndedEarly = " has ended, or never started";

void drop(Peer& peer) noexcept {
  peer.lost = true;
  peer.out = Wire();
  peer.in = Wire();
  peer.process = base::Fd();
}

/// Notes that there was no descriptor for the peer.
void starve(Peer& peer) noexcept { peer.starved = true; }

/// Null if there is no link yet, or the link needs no path finder.
backends::PathFinder* paths_of(const Peer& peer) { return peer.link == nullptr ? nullptr : peer.link->paths; }

Packet greeting_of(Rank rank, const backends::Transports& transports) {
  Writer writer(Kind::greeting);
  writer.put(rank).put(static_cast<std::uint32_t>(transports.size()));
  for (const auto& [name, transport] : transports) writer.text(name).blob(transport->address());
  return {writer.take(), {}};
}

Packet abort_of(const std::string& why) { return {Writer(Kind::abort).text(why).take(), {}}; }

void complain(Rank rank, Peer& peer, int error) {
  if (std::exchange(peer.complained, true)) return;
  base::log(base::LogLevel::warn, "rank " + std::to_string(rank) + " cannot reach rank " + std::to_string(peer.rank) +
                                      " and tries on: " + std::strerror(error));
}

}  // namespace

Peer& Peers::at(Rank rank) {
  auto [it, added] = peers_.try_emplace(rank);
  if (added) it->second.rank = rank;
  return it->second;
}

void Peers::reach(Peer& peer) {
  peer.wanted = true;
  if (peer.lost || peer.out) return;
  here(peer) ? connect_here(peer) : call(peer);
  if (!peer.out) return;
  if (!std::exchange(peer.greeted, true)) {
    if (!last_words_.empty()) peer.unsent.push_front(abort_of(last_words_));
    peer.unsent.push_front(greeting_of(place_.rank, transports_));
  }
  flush(peer);
}

void Peers::connect_here(Peer& peer) {
  if (place_.mailbox) {
    peer.out = Wire(place_.mailbox.connect(peer.rank));
    if (!peer.out) lose(peer, kEndedEarly);
    return;
  }
  base::Fd socket = connect_to(place_.job, peer.rank);
  if (!socket) {
    if (errno == ECONNREFUSED) return lose(peer, kEndedEarly);
    if (base::lacks_descriptors(errno)) return starve(peer);
    if (errno != EAGAIN) complain(place_.rank, peer, errno);
    return;
  }
  if (!trusted(socket)) return lose(peer, " is not reached: the process of another user answers for it");
  peer.out = Wire(std::move(socket));
}

std::size_t Peers::lacking() const noexcept {
  constexpr std::size_t kPacket = 8;  // may arrive with a packet
  std::size_t count = kPacket;
  for (const auto& [rank, peer] : peers_) {
    if (peer.lost || place_.mailbox) continue;
    count += (peer.out ? 0U : 1U) + (peer.in ? 0U : 1U) + (here(peer) && !peer.process ? 1U : 0U);
  }
  return count;
}

void Peers::give_up_starving(const std::string& why) {
  for (auto& [rank, peer] : peers_) {
    if (starves(peer)) lose(peer, " cannot be reached: " + why);
  }
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
  if (error == ECONNREFUSED) return lose(peer, kEndedEarly + std::string(": nobody listens") + where);
  if (base::lacks_descriptors(error)) {
    peer.sought = now;  // the timeout is for failures of the peer
    return starve(peer);
  }
  if (now - peer.sought >= timeout_) return lose(peer, " cannot be reached" + where, error == 0 ? ECONNRESET : error);
  if (error != 0) complain(place_.rank, peer, error);
}

void Peers::send(Peer& peer, Packet packet) {
  if (peer.lost) return;
  peer.unsent.push_back(std::move(packet));
  reach(peer);
  flush(peer);
  if (!peer.unsent.empty()) handler_.unsent();
}

void Peers::say_last_words(const std::string& why) {
  last_words_ = why;
  for (auto& [rank, peer] : peers_) {
    if (peer.greeted) send(peer, abort_of(why));
  }
}

bool Peers::owes_last_words() const {
  if (last_words_.empty()) return false;
  const auto owes = [](const auto& entry) {
    const Peer& peer = entry.second;
    return !peer.lost && peer.wanted && !(peer.greeted && peer.unsent.empty());
  };
  return !pending_.empty() || std::ranges::any_of(peers_, owes);
}

void Peers::flush(Peer& peer) {
  peer.stalled = false;
  while (peer.out && !peer.unsent.empty()) {
    switch (peer.out.send(peer.unsent.front().bytes, peer.unsent.front().fds)) {
      case Wire::Sent::yes: peer.unsent.pop_front(); break;
      case Wire::Sent::later:
        // Once the host has answered, no timeout applies: the rank accepts the connection when it is not busy.
        if (!peer.out.reached() && Clock::now() >= peer.next_call) call_failed(peer, ETIMEDOUT);
        return;
      case Wire::Sent::starved:
        peer.stalled = true;
        if (base::lacks_descriptors(peer.out.error())) starve(peer);
        return;
      case Wire::Sent::closed: return handle_closed_out(peer);
    }
  }
}

void Peers::handle_closed_out(Peer& peer) {
  const int error = peer.out.error();
  if (peer.out.reached() && !closed_by_peer(error)) return lose(peer, " cannot be reached any more", error);
  if (!peer.out.open()) return call_failed(peer, error);  // no message was sent yet, so none is lost
  // The peer has ended. Its last messages are still to be received: `listen_to` finds the end.
  peer.unsent.clear();
  if (!peer.in) take_callers();
  if (!peer.in) lose(peer, " has ended");
}

void Peers::flush() {
  for (auto& [rank, peer] : peers_) {
    if (!peer.out && peer.wanted) reach(peer);
    flush(peer);
  }
}

int Peers::prepare(std::vector<pollfd>& sockets) const {
  if (place_.listener) sockets.push_back({place_.listener.get(), POLLIN, 0});
  if (place_.tcp_listener && pending_.size() < kMaxPending) sockets.push_back({place_.tcp_listener.get(), POLLIN, 0});
  auto next = prepare_pending(pending_, sockets);
  for (const auto& [rank, peer] : peers_) {
    if (!peer.lost) next = std::min(next, prepare(peer, sockets));
  }
  return milliseconds_until(next);
}

/// When to serve this peer even if no socket is ready.
Clock::time_point Peers::prepare(const Peer& peer, std::vector<pollfd>& sockets) const {
  if (peer.in.socket()) sockets.push_back({peer.in.socket().get(), POLLIN, 0});
  if (peer.process) sockets.push_back({peer.process.get(), POLLIN, 0});
  const bool unsent = !peer.unsent.empty();
  if (peer.out.socket() && (unsent || !peer.in)) {
    const short wanted = peer.out.wanted(unsent && !peer.stalled);
    sockets.push_back({peer.out.socket().get(), static_cast<short>(wanted | (peer.in ? 0 : POLLRDHUP)), 0});
  }
  const auto next = peer.in && paths_of(peer) != nullptr ? peer.tended : Clock::time_point::max();
  const bool connects = !peer.out && peer.wanted;
  if (peer.stalled || (connects && here(peer))) return std::min(next, Clock::now() + std::chrono::milliseconds(1));
  if (connects || (peer.out && !peer.out.reached())) return std::min(next, peer.next_call);
  // Without a descriptor for the peer's process, `poll` does not notice its end.
  const bool unwatched = peer.in && peer.pid != 0 && !peer.process;
  return unwatched ? std::min(next, Clock::now() + kWatchAgain) : next;
}

bool Peers::serve() {
  lack_ = false;
  for (auto& [rank, peer] : peers_) peer.starved = false;
  hear_callers();
  for (auto& [rank, peer] : peers_) hear(peer);
  for (auto& [rank, peer] : peers_) tend(peer);
  flush();
  take_callers();  // last: it may find no descriptor free
  return !lack_ && std::ranges::none_of(peers_, [](const auto& entry) { return entry.second.starved; });
}

void Peers::hear(Peer& peer) {
  if (peer.lost) return;
  if (!peer.in) {
    if (!peer.out || !peer.out.open() || !peer.out.hung_up()) return;
    take_callers();
    if (!peer.in && !peer.lost) lose(peer, " has ended");
    return;
  }
  const bool over = ended(peer);  // before listening: the last messages of an ended process are received
  listen_to(peer);
  if (over) lose(peer, " has ended or died");
}

void Peers::accept() {
  if (place_.mailbox) {
    for (LineEnd& line : place_.mailbox.arrived()) pending_.push_back({Wire(std::move(line))});
    return;
  }
  while (base::Fd connection = accept_one(place_.listener)) {
    if (trusted(connection)) pending_.push_back({Wire(std::move(connection))});
  }
  while (place_.tcp_listener && pending_.size() < kMaxPending) {
    base::Fd connection = accept_one(place_.tcp_listener);
    if (!connection) return;
    base::keep_alive(connection, timeout_);
    pending_.push_back({Wire::called(std::move(connection), place_.roster.secret())});
  }
}

void Peers::hear_callers() {
  if (std::exchange(hears_callers_, true)) return;
  const auto done = [](bool* hears) { *hears = false; };
  const std::unique_ptr<bool, decltype(done)> until_return(&hears_callers_, done);  // or until an exception
  hear_pending(pending_, [this](Wire& wire, const backends::Blob& packet) { identify(wire, packet); });
}

/// A peer that ends may have called just before, and said why it ends.
void Peers::take_callers() {
  if (hears_callers_) return;
  accept();
  hear_callers();
}

/// Empty if no connection waits, or there is no descriptor for it. Polls first, because without a free descriptor
/// `accept` fails for the lack of one even if no connection waits.
base::Fd Peers::accept_one(const base::Fd& listener) {
  if ((poll_one(listener, POLLIN) & POLLIN) == 0) return {};
  base::Fd connection = base::accept_one(listener);
  if (!connection && base::lacks_descriptors(errno)) lack_ = true;
  return connection;
}

/// Takes the wire if the packet is the first greeting of a peer; else the wire is dropped.
void Peers::identify(Wire& wire, const backends::Blob& packet) {
  Reader message(packet);
  if (message.get<Kind>() != Kind::greeting) return;
  const auto rank = message.get<Rank>();
  if (rank < 0 || rank >= place_.size) return;
  Peer& peer = at(rank);
  if (peer.in || peer.lost) return;
  peer.in = std::move(wire);
  peer.pid = process_behind(peer.in.socket()).pid;
  if (peer.pid == getpid()) peer.pid = 0;
  choose_backend(peer, message);
  reach(peer);
  tend(peer);
  hear(peer);
}

/// Sends the messages of the link, and informs the handler when the link is ready.
void Peers::tend(Peer& peer) {
  if (peer.lost || !peer.in) return;
  if (paths_of(peer) != nullptr && Clock::now() >= peer.tended) {
    std::vector<backends::Blob> words;
    peer.tended = paths_of(peer)->tend(Clock::now(), words);
    for (const backends::Blob& word : words) send(peer, {Writer(Kind::path).blob(word).take(), {}});
  }
  if (peer.linked || (peer.link != nullptr && !peer.link->ready())) return;
  peer.linked = true;
  handler_.linked(peer);
}

/// Chooses the first backend that reaches the peer, in the order of the lower rank: so both ends choose the same.
void Peers::choose_backend(Peer& peer, Reader& greeting) {
  std::vector<std::pair<std::string, backends::Blob>> theirs;
  for (auto count = greeting.get<std::uint32_t>(); count > 0; --count) {
    std::string name = greeting.text();
    theirs.emplace_back(std::move(name), greeting.blob());
  }
  const auto choose = [&](const std::string& name) {
    const auto named = [&](const auto& entry) { return entry.first == name; };
    const auto ours = std::ranges::find_if(transports_, named);
    const auto address = std::ranges::find_if(theirs, named);
    if (peer.link != nullptr || ours == transports_.end() || address == theirs.end()) return;
    if (!ours->second->reaches(address->second, here(peer))) return;
    peer.backend = name;
    peer.link = ours->second->connect(peer.rank, address->second, here(peer));
  };
  if (place_.rank <= peer.rank) {
    for (const auto& [name, transport] : transports_) choose(name);
  } else {
    for (const auto& [name, address] : theirs) choose(name);
  }
}

void Peers::listen_to(Peer& peer) {
  while (!peer.lost) {
    std::optional<base::Packet> packet;
    try {
      packet = peer.in.receive();
    } catch (const std::system_error&) {
      return starve(peer);  // its messages wait; those of other peers do not
    }
    if (!packet) return;
    if (packet->closed) {
      if (!closed_by_peer(peer.in.error())) return lose(peer, " cannot be reached any more", peer.in.error());
      return lose(peer, " has ended or died");
    }
    Reader message(packet->bytes);
    const auto kind = message.get<Kind>();
    if (kind == Kind::path) {
      if (paths_of(peer) != nullptr) paths_of(peer)->heard(message.blob());
      peer.tended = {};
      tend(peer);
    } else {
      handler_.said(peer, kind, message, std::move(packet->fds));
    }
  }
}

void Peers::lose(Peer& peer, const std::string& how, int error) {
  if (peer.lost) return;
  peer.why_lost =
      "rank " + std::to_string(peer.rank) + how + (error == 0 ? "" : std::string(": ") + std::strerror(error));
  peer.unsent.clear();
  drop(peer);
  handler_.lost(peer);
}

void Peers::close() noexcept {
  for (auto& [rank, peer] : peers_) drop(peer);
  pending_.clear();
}

}  // namespace sluice::runtime
