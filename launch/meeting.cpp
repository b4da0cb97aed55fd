// SPDX-License-Identifier: Apache-2.0
#include "launch/meeting.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/network.hpp"
#include "base/process.hpp"
#include "base/words.hpp"
#include "peers/bootstrap.hpp"

namespace sluice::runtime {
namespace {

// Host 0 tells the others what failed: they wait for host 0 this much longer than host 0 waits for them.
constexpr std::chrono::seconds kMargin{5};

/// Not secret: it rejects programs that connect to this port by mistake.
constexpr std::string_view kPassword = "sluice-run meets";
static_assert(kPassword.size() == sizeof(Secret));

Secret password() { return Reader(std::as_bytes(std::span(kPassword))).get<Secret>(); }

[[noreturn]] void fail_to_meet(const std::string& what) { throw std::runtime_error(what); }

std::string name_of(int host) { return "host " + std::to_string(host); }

std::string text_of(const MeetingPoint& point) { return point.host + ":" + std::to_string(point.port); }

/// Returns false if the other end is closed, or the deadline passes first.
bool say(Wire& wire, const backends::Blob& message, Clock::time_point deadline) {
  for (;;) {
    const Wire::Sent sent = wire.send(message, {});
    if (sent == Wire::Sent::yes) return true;
    if (sent == Wire::Sent::closed || Clock::now() >= deadline) return false;
    poll_one(wire.socket(), sent == Wire::Sent::starved ? short{0} : wire.wanted(true),
             std::min(deadline, Clock::now() + kCallPause));
  }
}

/// Throws if the packet is the refusal of another host.
void fail_if_refused(const backends::Blob& packet) {
  Reader message(packet);
  if (message.get<Note>() == Note::refusal) fail_to_meet(message.text());
}

/// Receives the next message of a host, which must be of this kind. @throws std::runtime_error also for a refusal
backends::Blob hear(Wire& wire, Note expected, const std::string& host, Clock::time_point deadline) {
  for (;;) {
    if (auto packet = wire.receive()) {
      if (packet->closed) fail_to_meet(host + " has left before the job began");
      fail_if_refused(packet->bytes);
      if (Reader(packet->bytes).get<Note>() != expected)
        fail_to_meet(host + " says something unexpected: is it another version?");
      return std::move(packet->bytes);
    }
    if (Clock::now() >= deadline) fail_to_meet(host + " has said nothing for too long");
    poll_one(wire.socket(), POLLIN, deadline);
  }
}

/// First message of a host to host 0.
struct Hello {
  std::string version;
  int hosts = 0;
  int host = 0;
  base::Host where;
  std::vector<base::Endpoint> listeners;  ///< of its ranks
};

backends::Blob pack(const Hello& hello) {
  Writer writer(Note::hello);
  writer.text(hello.version).put(hello.hosts).put(hello.host).put(hello.where);
  return writer.blob(std::as_bytes(std::span(hello.listeners))).take();
}

/// Nothing: the packet is no hello.
std::optional<Hello> read_hello(const backends::Blob& packet) {
  try {
    Reader message(packet);
    if (message.get<Note>() != Note::hello) return std::nullopt;
    // In braces they are read in this order.
    return Hello{message.text(), message.get<int>(), message.get<int>(), message.get<base::Host>(),
                 message.list<base::Endpoint>()};
  } catch (const std::runtime_error&) {
    return std::nullopt;  // it ends too early
  }
}

/// Makes a listener for each rank of this host: at the address that SLUICE_INTERFACE names, else at `address`, by which
/// this host meets the others. A link-local address is of no use to them. The loopback's means their own host to them;
/// host 0 replaces it by another address (`advertise_no_loopback`).
Hello introduce(const Request& request, const base::Env& env, base::Endpoint address, Agreement& agreement) {
  if (!env.interface.empty()) address = base::own_address(env.interface);
  if (base::link_local(address)) address = base::own_address("");
  address.port = 0;
  const bool anywhere = base::loopback(address) && env.interface.empty();
  Hello hello{SLUICE_VERSION, request.hosts, request.host, base::this_host(), {}};
  for (int i = 0; i < request.ranks; ++i) {
    const base::Fd& listener =
        agreement.tcp_listeners.emplace_back(anywhere ? base::listen_everywhere(0) : base::listen_on(address));
    hello.listeners.push_back(address);
    hello.listeners.back().port = base::own_end(listener).port;
  }
  return hello;
}

void listen_here(Agreement& agreement, int ranks) {
  for (Rank rank = 0; rank < ranks; ++rank)
    agreement.listeners.push_back(listen_as(agreement.job, agreement.first + rank));
}

/// Takes this host's part of the agreement that host 0 has written, and listens for its ranks.
void take_part(Agreement& agreement, const Request& request, const backends::Blob& packet) {
  Reader message(packet);
  message.get<Note>();
  agreement.job = message.text();
  const auto secret = message.get<Secret>();
  const auto homes = message.list<Home>();
  agreement.size = static_cast<int>(homes.size());
  agreement.roster = Roster::write(secret, homes);
  agreement.first = message.list<Rank>().at(static_cast<std::size_t>(request.host));
  listen_here(agreement, request.ranks);
}

// ---- host 0

class MeetingOfHost0 {
 public:
  MeetingOfHost0(const Request& request, const base::Env& env)
      : request_(request), env_(env), deadline_(Clock::now() + env.connect_timeout),
        listener_(base::listen_everywhere(request.meet.port)) {}

  Agreement hold() {
    try {
      gather();
      agree();
      for (auto& [host, wire] : wires_) hear(wire, Note::ready, name_of(host), deadline_ + kMargin);
      tell_all(Writer(Note::go).take());
    } catch (const std::exception& error) {
      refuse(error.what());
      throw;
    }
    for (auto& [host, wire] : wires_) agreement_.partners.push_back({host, std::move(wire)});
    return std::move(agreement_);
  }

 private:
  void gather() {
    while (static_cast<int>(wires_.size()) < request_.hosts - 1) {
      if (Clock::now() >= deadline_) {
        int host = 1;
        while (wires_.contains(host)) ++host;
        fail_to_meet(name_of(host) + " has not come to meet at " + text_of(request_.meet) +
                     " (SLUICE_CONNECT_TIMEOUT)");
      }
      std::vector<pollfd> sockets = {{listener_.get(), POLLIN, 0}};
      const auto next = prepare_pending(pending_, sockets);
      for (const auto& [other, wire] : wires_) sockets.push_back({wire.socket().get(), POLLIN, 0});
      ::poll(sockets.data(), sockets.size(), milliseconds_until(std::min(next, deadline_)));
      while (base::Fd socket = base::accept_one(listener_)) {
        base::keep_alive(socket, env_.peer_timeout);
        pending_.push_back({Wire::called(std::move(socket), password())});
      }
      hear_pending(pending_, [this](Wire& wire, const backends::Blob& packet) { admit(wire, packet); });
      // A launcher that was stopped may be started anew.
      for (auto one = wires_.begin(); one != wires_.end();) {
        const auto packet = one->second.receive();
        one = packet && packet->closed ? wires_.erase(one) : std::next(one);
      }
    }
  }

  void admit(Wire& wire, const backends::Blob& packet) {
    fail_if_refused(packet);
    auto hello = read_hello(packet);
    if (!hello) return;
    refused_ = std::move(wire);  // unless `check` succeeds
    check(*hello);
    wires_[hello->host] = std::move(refused_);
    hellos_[hello->host] = std::move(*hello);
  }

  void check(const Hello& hello) const {
    const std::string name = name_of(hello.host);
    if (hello.version != SLUICE_VERSION) {
      fail_to_meet(name + " has version " + hello.version + " of sluice-run, host 0 version " SLUICE_VERSION);
    }
    if (hello.hosts != request_.hosts) {
      fail_to_meet(name + " was started with --hosts " + std::to_string(hello.hosts) + ", host 0 with --hosts " +
                   std::to_string(request_.hosts));
    }
    if (hello.host <= 0 || hello.host >= request_.hosts || wires_.contains(hello.host)) {
      fail_to_meet("two were started with --host " + std::to_string(hello.host));
    }
  }

  void agree() {
    hellos_[0] = introduce(request_, env_, address_met_at(), agreement_);
    advertise_no_loopback();
    std::vector<Home> homes;
    std::vector<Rank> firsts;                     // the lowest rank of each launcher
    std::map<base::Host, std::uint32_t> numbers;  // two launchers on one machine are one host to their ranks
    for (const auto& [host, hello] : hellos_) {
      const auto number = numbers.try_emplace(hello.where, static_cast<std::uint32_t>(numbers.size())).first->second;
      firsts.push_back(static_cast<Rank>(homes.size()));
      for (const base::Endpoint& listener : hello.listeners) homes.push_back({listener, number});
    }
    Writer writer(Note::agreement);
    writer.text(new_job()).put(new_secret()).blob(std::as_bytes(std::span(homes)));
    const backends::Blob message = writer.blob(std::as_bytes(std::span(firsts))).take();
    tell_all(message);
    take_part(agreement_, request_, message);
  }

  static bool connected_by_loopback(const Wire& wire) { return base::loopback(base::own_end(wire.socket())); }
  static bool met_by_loopback(const std::pair<const int, Wire>& host) { return connected_by_loopback(host.second); }

  /// The address at which another machine has connected to this one; the loopback's, if none has.
  base::Endpoint address_met_at() const {
    const auto from_elsewhere = std::ranges::find_if_not(wires_, met_by_loopback);
    return base::own_end((from_elsewhere == wires_.end() ? wires_.begin() : from_elsewhere)->second.socket());
  }

  /// Replaces loopback addresses of hosts that connected by the loopback: they are on this machine, so its address is
  /// theirs. Other machines cannot be reached at a loopback address.
  void advertise_no_loopback() {
    if (std::ranges::all_of(wires_, met_by_loopback)) return;
    const base::Endpoint here = hellos_[0].listeners.front();
    for (auto& [host, hello] : hellos_) {
      for (base::Endpoint& listener : hello.listeners) {
        if (!base::loopback(listener)) continue;
        if (host == 0 || !connected_by_loopback(wires_[host]) || base::loopback(here)) {
          fail_to_meet(name_of(host) + " is to be reached at " + base::text_of(listener) +
                       ", by which other hosts reach themselves (SLUICE_INTERFACE)");
        }
        listener = base::Endpoint{here.address, listener.port, here.version};
      }
    }
  }

  void tell_all(const backends::Blob& message) {
    for (auto& [host, wire] : wires_) {
      if (!say(wire, message, deadline_ + kMargin)) fail_to_meet(name_of(host) + " has left before the job began");
    }
  }

  void refuse(const std::string& why) {
    const backends::Blob message = Writer(Note::refusal).text(why).take();
    const auto soon = Clock::now() + kMargin;
    for (auto& [host, wire] : wires_) say(wire, message, soon);
    if (refused_) say(refused_, message, soon);
  }

  const Request& request_;
  const base::Env& env_;
  Clock::time_point deadline_;
  std::map<int, Hello> hellos_;  // by host
  std::map<int, Wire> wires_;    // by host; not to host 0, which is this one
  base::Fd listener_;
  std::vector<PendingConnection> pending_;
  Wire refused_;
  Agreement agreement_;
};

// ---- the others

/// Tries once to reach host 0; sets `why` if that fails.
std::optional<Wire> try_address(const base::Endpoint& address, const base::Env& env, Clock::time_point deadline,
                                std::string& why) {
  base::Fd socket = base::begin_connect(address);
  if (!socket) {
    why = std::strerror(errno);
    return std::nullopt;
  }
  base::keep_alive(socket, env.peer_timeout);
  Wire wire = Wire::calling(std::move(socket), password());
  const auto give_up = std::min(deadline, Clock::now() + kCallAgain);
  while (!wire.open() && !wire.receive() && Clock::now() < give_up) poll_one(wire.socket(), wire.wanted(true), give_up);
  if (wire.open()) return wire;
  if (wire.error() != 0) why = std::strerror(wire.error());
  return std::nullopt;
}

/// Calls host 0 at all its addresses in turn, until it answers. Resolves its name anew each time, because a name server
/// may have learnt of it meanwhile.
Wire call(const Request& request, const base::Env& env, Clock::time_point deadline) {
  std::string why = std::strerror(ETIMEDOUT);
  bool said = false;
  while (Clock::now() < deadline) {
    try {
      for (const base::Endpoint& address : base::resolve(request.meet.host, request.meet.port)) {
        if (auto wire = try_address(address, env, deadline, why)) return std::move(*wire);
      }
    } catch (const std::runtime_error& unknown) {
      why = unknown.what();
      if (!std::exchange(said, true))
        base::log(base::LogLevel::warn, why + "; asking again until SLUICE_CONNECT_TIMEOUT");
    }
    std::this_thread::sleep_until(std::min(deadline, Clock::now() + kCallPause));
  }
  fail_to_meet("cannot meet host 0 at " + text_of(request.meet) + " (SLUICE_CONNECT_TIMEOUT): " + why);
}

Agreement attend(const Request& request, const base::Env& env) {
  Agreement agreement;
  Wire wire = call(request, env, Clock::now() + env.connect_timeout);
  // Host 0 began to wait before this host called.
  const auto deadline = Clock::now() + env.connect_timeout + 3 * kMargin;
  try {
    say(wire, pack(introduce(request, env, base::own_end(wire.socket()), agreement)), deadline);
    take_part(agreement, request, hear(wire, Note::agreement, name_of(0), deadline));
    say(wire, Writer(Note::ready).take(), deadline);
    hear(wire, Note::go, name_of(0), deadline);
  } catch (const std::exception& error) {
    say(wire, Writer(Note::refusal).text(name_of(request.host) + ": " + error.what()).take(), Clock::now());
    throw;
  }
  agreement.partners.push_back({0, std::move(wire)});
  return agreement;
}

}  // namespace

Agreement meet(const Request& request, const base::Env& env) {
  if (request.hosts > 1) return request.host == 0 ? MeetingOfHost0(request, env).hold() : attend(request, env);
  Agreement alone;
  alone.size = request.ranks;
  if (request.threads) return alone;
  alone.job = new_job();
  listen_here(alone, request.ranks);
  return alone;
}

}  // namespace sluice::runtime
