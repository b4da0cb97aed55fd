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
#include <utility>

#include "base/log.hpp"
#include "base/network.hpp"
#include "base/process.hpp"
#include "base/words.hpp"
#include "peers/bootstrap.hpp"

namespace sluice::runtime {
namespace {

using base::Clock;
using std::chrono::milliseconds;

// No secret: it keeps out whoever comes to this port by mistake.
constexpr std::string_view kPassword = "sluice-run meets";
// Host 0 says what went wrong; others wait for its word a little longer than it waits for them.
constexpr std::chrono::seconds kCourtesy{5};

Secret password() {
  Secret secret{};
  static_assert(kPassword.size() == sizeof secret);
  std::memcpy(secret.data(), kPassword.data(), secret.size());
  return secret;
}

[[noreturn]] void fail_to_meet(const std::string& what) { throw std::runtime_error(what); }

std::string name_of(int host) { return "host " + std::to_string(host); }

/// Sleeps until one of the sockets is ready, or the deadline has come.
void sleep_for(std::vector<pollfd>& sockets, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
  ::poll(sockets.data(), sockets.size(), static_cast<int>(std::clamp<decltype(left)>(left, 0, 3'600'000)));
}

void sleep_for(const Wire& wire, short wanted, Clock::time_point deadline) {
  std::vector<pollfd> one = {{wire.socket().get(), wanted, 0}};
  sleep_for(one, deadline);
}

/// False: the other end is gone, or does not take it in time.
bool say(Wire& wire, const backends::Blob& message, Clock::time_point deadline) {
  for (;;) {
    const Wire::Sent sent = wire.send(message, {});
    if (sent == Wire::Sent::yes) return true;
    if (sent == Wire::Sent::over || Clock::now() >= deadline) return false;
    sleep_for(wire, sent == Wire::Sent::starved ? short{0} : wire.wanted(true),
              std::min(deadline, Clock::now() + kCallPause));
  }
}

/// Another host says that there will be no job.
void fail_if_refused(const backends::Blob& packet) {
  Reader message(packet);
  if (message.get<Note>() == Note::refusal) fail_to_meet(message.text());
}

/// The next message from `who`, which must be of this kind; a refusal is thrown.
backends::Blob hear(Wire& wire, Note expected, const std::string& who, Clock::time_point deadline) {
  for (;;) {
    auto packet = wire.receive();
    if (packet && packet->closed) fail_to_meet(who + " has left before the job began");
    if (packet) {
      fail_if_refused(packet->bytes);
      if (Reader(packet->bytes).get<Note>() != expected)
        fail_to_meet(who + " says something unexpected: is it another version?");
      return std::move(packet->bytes);
    }
    if (Clock::now() >= deadline) fail_to_meet(who + " has said nothing for too long");
    sleep_for(wire, POLLIN, deadline);
  }
}

/// What one host brings.
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
  writer.blob(std::as_bytes(std::span(hello.listeners)));
  return writer.take();
}

/// Nothing: this is none.
std::optional<Hello> read_hello(const backends::Blob& packet) try {
  Reader message(packet);
  const Note note = message.get<Note>();
  if (note != Note::hello) return std::nullopt;
  Hello hello;
  hello.version = message.text();
  hello.hosts = message.get<int>();
  hello.host = message.get<int>();
  hello.where = message.get<base::Host>();
  const backends::Blob listeners = message.blob();
  hello.listeners.resize(listeners.size() / sizeof(base::Endpoint));
  std::memcpy(hello.listeners.data(), listeners.data(), hello.listeners.size() * sizeof(base::Endpoint));
  return hello;
} catch (const std::runtime_error&) {
  return std::nullopt;  // it ends too early
}

/// Makes a socket for each rank of this host, at the address that SLUICE_INTERFACE names, else at the one by which this
/// host meets the others. A link-local one means nothing to them; the loopback's means the host that they are on, which
/// host 0 knows another address of.
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

void listen_here(Agreement& agreement) {
  for (std::size_t i = 0; i < agreement.tcp_listeners.size(); ++i) {
    agreement.listeners.push_back(listen_as(agreement.job, agreement.first + static_cast<Rank>(i)));
  }
}

// ---- host 0

class Assembly {
 public:
  Assembly(const Request& request, const base::Env& env)
      : request_(request), env_(env), deadline_(Clock::now() + env.connect_timeout),
        hellos_(static_cast<std::size_t>(request.hosts)), wires_(hellos_.size()),
        door_(base::listen_everywhere(request.meet.port)) {}

  Agreement hold() {
    try {
      gather();
      agree();
      listen_here(agreement_);
      for (std::size_t host = 1; host < wires_.size(); ++host) {
        hear(wires_[host], Note::ready, name_of(static_cast<int>(host)), deadline_ + kCourtesy);
      }
      tell_all(Writer(Note::go).take());
    } catch (const std::exception& error) {
      refuse(error.what());
      throw;
    }
    for (std::size_t host = 1; host < wires_.size(); ++host) {
      agreement_.partners.push_back({static_cast<int>(host), std::move(wires_[host])});
    }
    return std::move(agreement_);
  }

 private:
  struct Stranger {
    Wire wire;
    Clock::time_point until;
  };

  void gather() {
    while (const int host = missing()) {
      if (Clock::now() >= deadline_) fail_to_meet(missing_text(host));
      std::vector<pollfd> sockets = {{door_.get(), POLLIN, 0}};
      auto next = deadline_;
      for (const Stranger& stranger : strangers_) {
        sockets.push_back({stranger.wire.socket().get(), POLLIN, 0});
        if (!stranger.wire.open()) next = std::min(next, stranger.until);
      }
      for (const Wire& wire : wires_) sockets.push_back({wire.socket().get(), POLLIN, 0});
      sleep_for(sockets, next);
      while (base::Fd stranger = base::accept_one(door_)) {
        base::keep_alive(stranger, env_.peer_timeout);
        strangers_.push_back({Wire::called(std::move(stranger), password()), Clock::now() + kSilence});
      }
      std::erase_if(strangers_, [this](Stranger& stranger) { return admit(stranger); });
      for (Wire& wire : wires_) forget_if_gone(wire);
    }
  }

  /// The first host that has not come; 0: none.
  int missing() const {
    const auto all = std::span(wires_).subspan(1);
    const auto first = std::ranges::find_if(all, [](const Wire& wire) { return !wire; });
    return first == all.end() ? 0 : static_cast<int>(first - all.begin()) + 1;
  }

  std::string missing_text(int host) const {
    return name_of(host) + " has not come to meet at " + request_.meet.host + ":" + std::to_string(request_.meet.port) +
           " (SLUICE_CONNECT_TIMEOUT)";
  }

  /// True: the stranger is known, or to be forgotten.
  bool admit(Stranger& stranger) {
    const auto packet = stranger.wire.receive();
    if (!packet) return !stranger.wire.open() && Clock::now() >= stranger.until;
    if (packet->closed) return true;
    fail_if_refused(packet->bytes);
    auto hello = read_hello(packet->bytes);
    if (!hello) return true;
    refused_ = std::move(stranger.wire);  // for now
    check(*hello);
    const auto host = static_cast<std::size_t>(hello->host);
    hellos_[host] = std::move(*hello);
    wires_[host] = std::move(refused_);
    return true;
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
    if (hello.host <= 0 || hello.host >= request_.hosts || wires_[static_cast<std::size_t>(hello.host)]) {
      fail_to_meet("two were started with --host " + std::to_string(hello.host));
    }
  }

  /// Somebody stopped it, and may start it anew.
  static void forget_if_gone(Wire& wire) {
    if (!wire) return;
    const auto packet = wire.receive();
    if (packet && packet->closed) wire = Wire();
  }

  void agree() {
    hellos_[0] = introduce(request_, env_, address_met_at(), agreement_);
    advertise_no_loopback();
    const std::vector<Home> homes = all_homes();
    const Secret secret = new_secret();
    agreement_.job = new_job();
    agreement_.size = static_cast<int>(homes.size());
    agreement_.roster = Roster::write(secret, homes);
    Writer writer(Note::agreement);
    writer.text(agreement_.job).put(secret).blob(std::as_bytes(std::span(homes)));
    Rank first = 0;
    for (const Hello& hello : hellos_) {
      writer.put(first);
      first += static_cast<Rank>(hello.listeners.size());
    }
    tell_all(writer.take());
  }

  static bool came_by_loopback(const Wire& wire) { return base::loopback(base::own_end(wire.socket())); }

  /// The address at which another machine has met this one; the loopback, if there is no other.
  base::Endpoint address_met_at() const {
    const auto others = std::span(wires_).subspan(1);
    const auto from_elsewhere = std::ranges::find_if_not(others, came_by_loopback);
    return base::own_end((from_elsewhere == others.end() ? others.front() : *from_elsewhere).socket());
  }

  /// Hosts that came by the loopback are this machine, so its address is theirs. Others cannot be reached by theirs.
  void advertise_no_loopback() {
    const auto others = std::span(wires_).subspan(1);
    if (std::ranges::all_of(others, came_by_loopback)) return;
    const base::Endpoint here = hellos_[0].listeners.front();
    for (std::size_t host = 0; host < hellos_.size(); ++host) {
      for (base::Endpoint& listener : hellos_[host].listeners) {
        if (!base::loopback(listener)) continue;
        if (host == 0 || !came_by_loopback(wires_[host]) || base::loopback(here)) {
          fail_to_meet(name_of(static_cast<int>(host)) + " is to be reached at " + base::text_of(listener) +
                       ", by which other hosts reach themselves (SLUICE_INTERFACE)");
        }
        listener = base::Endpoint{here.address, listener.port, here.version};
      }
    }
  }

  /// Host by host. Two launchers on one machine are one host to their ranks.
  std::vector<Home> all_homes() const {
    std::vector<Home> homes;
    std::map<base::Host, std::uint32_t> numbers;
    for (const Hello& hello : hellos_) {
      const auto number = numbers.try_emplace(hello.where, static_cast<std::uint32_t>(numbers.size())).first->second;
      for (const base::Endpoint& listener : hello.listeners) homes.push_back({listener, number});
    }
    return homes;
  }

  void tell_all(const backends::Blob& message) {
    for (std::size_t host = 1; host < wires_.size(); ++host) {
      if (say(wires_[host], message, deadline_ + kCourtesy)) continue;
      fail_to_meet(name_of(static_cast<int>(host)) + " has left before the job began");
    }
  }

  void refuse(const std::string& why) {
    const backends::Blob message = Writer(Note::refusal).text(why).take();
    const auto soon = Clock::now() + kCourtesy;
    for (Wire& wire : wires_) {
      if (wire) say(wire, message, soon);
    }
    if (refused_) say(refused_, message, soon);
  }

  const Request& request_;
  const base::Env& env_;
  Clock::time_point deadline_;
  std::vector<Hello> hellos_;  // by host
  std::vector<Wire> wires_;    // by host; the first is empty
  base::Fd door_;
  std::vector<Stranger> strangers_;
  Wire refused_;
  Agreement agreement_;
};

// ---- the others

/// One attempt to reach host 0; else why not.
std::optional<Wire> try_door(const base::Endpoint& door, const base::Env& env, Clock::time_point deadline,
                             std::string& why) {
  base::Fd socket = base::begin_connect(door);
  if (!socket) {
    why = std::strerror(errno);
    return std::nullopt;
  }
  base::keep_alive(socket, env.peer_timeout);
  Wire wire = Wire::calling(std::move(socket), password());
  const auto give_up = std::min(deadline, Clock::now() + kCallAgain);
  while (!wire.open() && !wire.receive() && Clock::now() < give_up) sleep_for(wire, wire.wanted(true), give_up);
  if (wire.open()) return wire;
  if (wire.error() != 0) why = std::strerror(wire.error());
  return std::nullopt;
}

/// Calls host 0 at all its addresses in turn, until it answers. Its name may become known meanwhile, or get others.
Wire call(const Request& request, const base::Env& env, Clock::time_point deadline) {
  std::string why = std::strerror(ETIMEDOUT);
  bool said = false;
  while (Clock::now() < deadline) {
    std::vector<base::Endpoint> doors;
    try {
      doors = base::resolve(request.meet.host, request.meet.port);
    } catch (const std::runtime_error& unknown) {
      why = unknown.what();
      if (!std::exchange(said, true))
        base::log(base::LogLevel::warn, why + "; asking again until SLUICE_CONNECT_TIMEOUT");
    }
    for (const base::Endpoint& door : doors) {
      if (auto wire = try_door(door, env, deadline, why)) return std::move(*wire);
    }
    std::vector<pollfd> none;
    sleep_for(none, std::min(deadline, Clock::now() + kCallPause));
  }
  fail_to_meet("cannot meet host 0 at " + request.meet.host + ":" + std::to_string(request.meet.port) +
               " (SLUICE_CONNECT_TIMEOUT): " + why);
}

void take_agreement(const backends::Blob& packet, int host, Agreement& agreement) {
  Reader message(packet);
  message.get<Note>();
  agreement.job = message.text();
  const auto secret = message.get<Secret>();
  const backends::Blob bytes = message.blob();
  std::vector<Home> homes(bytes.size() / sizeof(Home));
  std::memcpy(homes.data(), bytes.data(), homes.size() * sizeof(Home));
  agreement.size = static_cast<int>(homes.size());
  agreement.roster = Roster::write(secret, homes);
  for (int i = 0; i <= host; ++i) agreement.first = message.get<Rank>();
}

Agreement attend(const Request& request, const base::Env& env) {
  Agreement agreement;
  Wire wire = call(request, env, Clock::now() + env.connect_timeout);
  // It began to wait before we came.
  const auto deadline = Clock::now() + env.connect_timeout + 3 * kCourtesy;
  try {
    say(wire, pack(introduce(request, env, base::own_end(wire.socket()), agreement)), deadline);
    take_agreement(hear(wire, Note::agreement, name_of(0), deadline), request.host, agreement);
    listen_here(agreement);
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
  return request.host == 0 ? Assembly(request, env).hold() : attend(request, env);
}

}  // namespace sluice::runtime
