// SPDX-License-Identifier: Apache-2.0
// A rank for tests/hosts.py: one of the things that are tested between hosts, by name.
#include <sluice/sluice.hpp>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/env.hpp"
#include "peers/peers.hpp"
#include "runtime/report.hpp"

namespace {

using namespace std::chrono_literals;
using sluice::base::Clock;

void say(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) std::abort();
}

// Passes something round among the ranks of this host, if there are several.
void use_this_host(sluice::Context& context, sluice::Rank first) {
  std::vector<sluice::Rank> ranks;
  for (int i = 0; i < context.node_size(); ++i) ranks.push_back(first + i);
  sluice::Context here = context.sub(ranks);
  if (here.node_size() != here.size() || here.node_rank() != context.node_rank()) throw std::runtime_error("wrong sub");
  if (here.size() == 1) return;
  const auto stream = sluice::Stream::program_order();
  const sluice::Memory memory = context.allocate(2 * sizeof(int));
  const int right = (here.rank() + 1) % here.size();
  const int left = (here.rank() + here.size() - 1) % here.size();
  sluice::Sender east = here.sender(right, 1, memory.slice(0, sizeof(int)));
  sluice::Receiver west = here.receiver(left, 1, memory.slice(sizeof(int), sizeof(int)));
  const sluice::Slice source = east.acquire(stream);
  source.as<int>()[0] = here.rank();
  east.put(stream);
  const sluice::Slice target = west.wait(stream);
  if (target.as<int>()[0] != left) throw std::runtime_error("wrong data");
  west.release(stream);
}

void says_who_it_is(sluice::Context& context) {
  use_this_host(context, context.rank() - context.node_rank());
  say("rank " + std::to_string(context.rank()) + " of " + std::to_string(context.size()) + ", " +
      std::to_string(context.node_rank()) + " of " + std::to_string(context.node_size()) + " here");
}

void waits(sluice::Context& context) {
  say("rank " + std::to_string(context.rank()) + " is process " + std::to_string(::getpid()));
  for (;;) ::pause();
}

/// How a channel to the peer ends that is waited for; empty: it does not, for now.
std::string try_channel(sluice::Context& context, sluice::Rank peer, sluice::Tag tag) {
  try {
    const sluice::Memory memory = context.allocate(8);
    sluice::Sender sender = context.sender(peer, tag, memory.slice(0, 8));
    sender.wait_connected(1s);
    return "";
  } catch (const sluice::Error& error) {
    if (error.code() == sluice::Code::timeout) return "";
    return error.what();
  }
}

// Rank 0 opens one channel after the other to the last rank and tells how they end, each time that it changes, until
// that rank is lost.
void watches_the_last(sluice::Context& context) {
  if (context.rank() != 0) return waits(context);
  std::string before;
  for (sluice::Tag tag = 1;; ++tag) {
    const std::string now = try_channel(context, context.size() - 1, tag);
    if (now.find("rank " + std::to_string(context.size() - 1)) != std::string::npos) {
      const bool lost = now.find("no backend that is open here") == std::string::npos;
      const std::string what = lost ? "lost: " + now : "unsupported: no backend that is open here reaches it";
      if (what != before) say(what);
      before = what;
      if (lost) return;
    }
    if (now.empty() && std::exchange(before, "alive") != "alive") say("alive: but it opens no channel");
    std::this_thread::sleep_for(20ms);
  }
}

/// Sends a slot to the other one of two ranks, and checks every byte of what comes from it.
class Exchange {
 public:
  Exchange(sluice::Context& context, std::size_t bytes)
      : peer_(1 - context.rank()), memory_(context.allocate(2 * bytes)),
        out_(context.sender(peer_, static_cast<sluice::Tag>(bytes), memory_.slice(0, bytes))),
        in_(context.receiver(peer_, static_cast<sluice::Tag>(bytes), memory_.slice(bytes, bytes))) {}

  void operator()(std::uint8_t stamp) {
    const auto stream = sluice::Stream::program_order();
    const sluice::Slice source = out_.acquire(stream);
    std::fill_n(source.as<std::uint8_t>().data(), source.bytes(), stamp);
    out_.put(stream);
    const sluice::Slice target = in_.wait(stream);
    for (const std::uint8_t byte : target.as<std::uint8_t>()) {
      if (byte != stamp) throw std::runtime_error("wrong data");
    }
    std::fill_n(target.as<std::uint8_t>().data(), target.bytes(), std::uint8_t{0});
    in_.release(stream);
  }

 private:
  sluice::Rank peer_;
  sluice::Memory memory_;
  sluice::Sender out_;
  sluice::Receiver in_;
};

/// Messages on one rail, and striped ones.
void exchanges(sluice::Context& context, int rounds) {
  Exchange small(context, 8);
  Exchange large(context, 1 << 20);
  for (int round = 1; round <= rounds; ++round) {
    small(static_cast<std::uint8_t>(round % 251));
    large(static_cast<std::uint8_t>(round % 241));
    if (round == 4) say("four rounds have arrived");
    if (round > 4) std::this_thread::sleep_for(20ms);
  }
}

void exchanges_a_little(sluice::Context& context) {
  exchanges(context, 4);
  say("all has arrived");
}

void exchanges_for_ever(sluice::Context& context) { exchanges(context, std::numeric_limits<int>::max()); }

/// All ranks add to one word of rank 0, which computes, sleeps, and looks at its memory without a call meanwhile.
void adds_to_a_window(sluice::Context& context) {
  constexpr std::uint64_t kTimes = 2000;
  constexpr std::size_t kSum = 0, kDone = 8;
  const auto ranks = static_cast<std::uint64_t>(context.size());
  const sluice::Memory memory = context.allocate(16);
  const sluice::Memory memory_of_old = context.allocate(8);
  const sluice::Slice old = memory_of_old.all();
  sluice::Window window;
  if (context.rank() == 0) window = context.window("sum", memory.all());
  sluice::Target target = context.target(0, "sum");
  target.wait_connected();
  std::uint64_t last = 0;
  const auto add = [&](std::uint64_t i) {
    target.fetch_add({}, kSum, 1, old);
    target.flush({});
    const std::uint64_t before = old.as<std::uint64_t>()[0];
    if (i != 0 && before <= last) throw std::runtime_error("a sum that does not grow");
    last = before;
  };
  for (std::uint64_t i = 0; i < kTimes; ++i) add(i);
  if (context.rank() != 0) {
    say("rank " + std::to_string(context.rank()) + ": " + target.describe());
    static_cast<void>(target.fetch_add(kDone, 1));
    return target.close();
  }
  const sluice::Slice words = memory.all();
  const std::atomic_ref<std::uint64_t> done(words.as<std::uint64_t>()[1]);
  while (done.load() != ranks - 1) {
    for (const auto end = Clock::now() + 2ms; Clock::now() < end;) {
    }
    std::this_thread::sleep_for(2ms);
  }
  say("the sum is " + std::to_string(target.fetch_add(kSum, 0)) + " of " + std::to_string(ranks * kTimes));
}

// ---- without a context: messages alone

struct Speaker final : sluice::runtime::Peers::Handler {
  explicit Speaker(const sluice::base::Env& env)
      : place(sluice::runtime::launched(env)), peers(place, env.peer_timeout, transports, *this) {}

  void linked(sluice::runtime::Peer&) override {}
  void said(sluice::runtime::Peer&, sluice::runtime::Kind, sluice::runtime::Reader& message,
            std::vector<sluice::base::Fd>) override {
    if (message.get<std::uint64_t>() != heard++) throw std::logic_error("out of order");
  }
  void lost(sluice::runtime::Peer& peer) override { why_lost = peer.why_lost; }
  void unsent() override {}

  void turn() {
    std::vector<pollfd> sockets;
    const int patience = peers.prepare(sockets);
    ::poll(sockets.data(), sockets.size(), patience < 0 ? 1 : std::min(patience, 1));
    if (!peers.serve()) throw std::runtime_error(sluice::base::lack_of_descriptors(peers.lacking()));
  }

  sluice::runtime::Place place;
  sluice::backends::Transports transports;
  sluice::runtime::Peers peers;
  std::uint64_t heard = 0;
  std::string why_lost;
};

// The first and the last rank number their messages, one a millisecond, and check that all arrive.
int chatters(std::uint64_t messages) {
  const sluice::base::Env env = sluice::base::read_env();
  const sluice::base::Fd launcher = sluice::runtime::join_launcher(env);
  Speaker speaker(env);
  if (speaker.place.rank != 0 && speaker.place.rank != speaker.place.size - 1) return 0;
  auto& peer = speaker.peers.at(speaker.place.size - 1 - speaker.place.rank);
  auto next = Clock::now();
  bool under_way = false;
  for (std::uint64_t said = 0; said < messages || speaker.heard < messages || !peer.unsent.empty(); speaker.turn()) {
    if (peer.lost) return say("lost: " + peer.why_lost), 5;
    for (; said < messages && Clock::now() >= next; next += 1ms) {
      speaker.peers.send(peer, {sluice::runtime::Writer(sluice::runtime::Kind::closing).put(said++).take(), {}});
    }
    if (said >= 100 && speaker.heard > 0 && !std::exchange(under_way, true)) say("under way");
  }
  say("heard " + std::to_string(speaker.heard));
  return 0;
}

const std::map<std::string_view, sluice::Body> kBodies = {
    {"who", says_who_it_is},          {"wait", waits},
    {"watch", watches_the_last},      {"add", adds_to_a_window},
    {"exchange", exchanges_a_little}, {"exchange_on", exchanges_for_ever}};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "chatter") return chatters(std::strtoull(argv[2], nullptr, 10));
  const auto body = argc == 2 ? kBodies.find(argv[1]) : kBodies.end();
  if (body == kBodies.end()) {
    std::fputs("usage: hosts_rank who|wait|watch|add|exchange|exchange_on, or chatter MESSAGES\n", stderr);
    return 2;
  }
  return sluice::run(argc, argv, body->second);
}
