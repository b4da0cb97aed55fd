// SPDX-License-Identifier: Apache-2.0
// Peers on different hosts, as they see it: two of them in this process, over the loopback.
#include "peers/peers.hpp"

#include <gtest/gtest.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/network.hpp"

namespace {

using namespace std::chrono_literals;
using namespace sluice::runtime;
using sluice::Rank;
using sluice::base::Clock;
using sluice::base::Fd;

const sluice::backends::Transports kNoTransports;

/// A rank that only listens and talks.
struct Speaker final : Peers::Handler {
  Speaker(Place where, std::chrono::nanoseconds timeout)
      : place(std::move(where)), peers(place, timeout, kNoTransports, *this) {}

  void linked(Peer&) override { ++links; }
  void said(Peer&, Kind, Reader& message, std::vector<Fd>) override { heard.push_back(message.get<std::uint64_t>()); }
  void lost(Peer& peer) override { why_lost = peer.why_lost; }
  void unsent() override {}
  void say(Rank to, std::uint64_t number) { peers.send(peers.at(to), {Writer(Kind::closing).put(number).take(), {}}); }

  Place place;
  Peers peers;
  int links = 0;
  std::vector<std::uint64_t> heard;
  std::string why_lost;
};

/// The two ranks of a job on two hosts.
std::vector<Place> two_hosts() {
  const std::string job = new_job();
  const Secret secret = new_secret();
  std::vector<Place> places;
  std::vector<Home> homes;
  for (const Rank rank : {0, 1}) {
    Place& place = places.emplace_back(Place{rank, 2, job, listen_as(job, rank), {}, {}});
    place.tcp_listener = sluice::base::listen_on(sluice::base::resolve("127.0.0.1", 0).front());
    homes.push_back({sluice::base::own_end(place.tcp_listener), static_cast<std::uint32_t>(rank)});
  }
  const Fd table = Roster::write(secret, homes);
  for (Place& place : places) place.roster = Roster(table, 2);
  return places;
}

/// Lets the peers exchange messages until `done`. False: not in time.
template <class Done>
bool run_until(const std::vector<Speaker*>& speakers, std::chrono::seconds limit, Done done) {
  const auto deadline = Clock::now() + limit;
  while (!done()) {
    if (Clock::now() >= deadline) return false;
    std::vector<pollfd> sockets;
    int patience = 1000;
    for (Speaker* speaker : speakers) {
      const int own = speaker->peers.prepare(sockets);
      if (own >= 0) patience = std::min(patience, own);
    }
    ::poll(sockets.data(), sockets.size(), patience);
    for (Speaker* speaker : speakers) speaker->peers.serve();
  }
  return true;
}

struct Two {
  Two() : Two(two_hosts()) {}
  explicit Two(std::vector<Place> places) : zero(std::move(places[0]), 2s), one(std::move(places[1]), 2s) {}

  void meet() {
    zero.say(1, 0);
    ASSERT_TRUE(run_until({&zero, &one}, 10s, [&] { return zero.links == 1 && one.links == 1 && !one.heard.empty(); }));
  }
  Speaker zero;
  Speaker one;
};

bool is_closed(const Fd& socket) {
  std::array<char, 64> bytes{};
  return ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) == 0 || errno == ECONNRESET;
}

TEST(Peers, those_of_other_hosts_hear_everything_once_and_in_order) {
  Two two;
  constexpr std::uint64_t kMany = 20'000;
  for (std::uint64_t i = 0; i < kMany; ++i) {
    two.zero.say(1, i);
    two.one.say(0, i);
  }
  ASSERT_TRUE(run_until({&two.zero, &two.one}, 30s,
                        [&] { return two.zero.heard.size() == kMany && two.one.heard.size() == kMany; }));
  for (std::uint64_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(two.zero.heard[i], i);
    ASSERT_EQ(two.one.heard[i], i);
  }
  EXPECT_EQ(two.zero.links, 1);
  EXPECT_EQ(two.one.links, 1);
}

TEST(Peers, a_rank_of_another_host_that_ends_is_lost_after_its_last_words) {
  std::vector<Place> places = two_hosts();
  Speaker zero(std::move(places[0]), 2s);
  {
    Speaker one(std::move(places[1]), 2s);
    zero.say(1, 0);
    ASSERT_TRUE(run_until({&zero, &one}, 10s, [&] { return zero.links == 1 && one.links == 1; }));
    one.say(0, 17);
  }
  ASSERT_TRUE(run_until({&zero}, 10s, [&] { return !zero.why_lost.empty(); }));
  EXPECT_EQ(zero.heard, std::vector<std::uint64_t>{17});
  EXPECT_NE(zero.why_lost.find("rank 1 has ended"), std::string::npos) << zero.why_lost;
}

TEST(Peers, a_rank_of_another_host_that_refuses_has_ended) {
  std::vector<Place> places = two_hosts();
  Speaker zero(std::move(places[0]), 2s);
  places[1].tcp_listener = Fd();
  zero.say(1, 0);
  ASSERT_TRUE(run_until({&zero}, 10s, [&] { return !zero.why_lost.empty(); }));
  EXPECT_NE(zero.why_lost.find("rank 1 has ended, or never started: nobody listens at 127.0.0.1:"), std::string::npos);
  EXPECT_NE(zero.why_lost.find("SLUICE_INTERFACE"), std::string::npos) << zero.why_lost;
}

TEST(Peers, one_that_cannot_be_reached_is_lost_after_the_timeout_and_not_before) {
  std::vector<Place> places = two_hosts();
  const std::array<Home, 2> homes = {Home{sluice::base::own_end(places[0].tcp_listener), 0},
                                     // The broadcast address: there is no way to connect to it.
                                     Home{sluice::base::resolve("255.255.255.255", 9).front(), 1}};
  places[0].roster = Roster(Roster::write(new_secret(), homes), 2);
  Speaker zero(std::move(places[0]), 1s);
  const auto before = Clock::now();
  zero.say(1, 0);
  ASSERT_TRUE(run_until({&zero}, 10s, [&] { return !zero.why_lost.empty(); }));
  EXPECT_GE(Clock::now() - before, 1s);
  EXPECT_NE(zero.why_lost.find("rank 1 cannot be reached"), std::string::npos) << zero.why_lost;
}

TEST(Peers, one_that_does_not_answer_is_called_again_until_the_timeout) {
  std::vector<Place> places = two_hosts();
  const Fd& door = places[1].tcp_listener;
  ASSERT_EQ(::listen(door.get(), 0), 0);
  std::vector<Fd> full;  // what comes after these is not answered
  for (int i = 0; i < 4; ++i) full.push_back(sluice::base::begin_connect(sluice::base::own_end(door)));
  Speaker zero(std::move(places[0]), 2s);
  const auto before = Clock::now();
  zero.say(1, 0);
  ASSERT_TRUE(run_until({&zero}, 30s, [&] { return !zero.why_lost.empty(); }));
  EXPECT_GE(Clock::now() - before, 2s);
  EXPECT_NE(zero.why_lost.find("rank 1 cannot be reached at 127.0.0.1:"), std::string::npos) << zero.why_lost;
  EXPECT_NE(zero.why_lost.find("SLUICE_INTERFACE"), std::string::npos) << zero.why_lost;
  EXPECT_NE(zero.why_lost.find(": Connection timed out"), std::string::npos) << zero.why_lost;
}

TEST(Peers, strangers_are_dropped_and_disturb_nobody) {
  Two two;
  const auto door = sluice::base::own_end(two.one.place.tcp_listener);
  const auto began = Clock::now();
  const Fd silent = sluice::base::begin_connect(door);
  const Fd loud = sluice::base::begin_connect(door);
  std::array<char, 4096> garbage{};
  garbage.fill('x');
  ASSERT_GT(::send(loud.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
  ASSERT_NO_FATAL_FAILURE(two.meet());
  ASSERT_TRUE(run_until({&two.zero, &two.one}, 4s, [&] { return is_closed(loud); }));
  EXPECT_FALSE(is_closed(silent));
  ASSERT_TRUE(run_until({&two.zero, &two.one}, 10s, [&] { return is_closed(silent); }));
  EXPECT_GE(Clock::now() - began, 4900ms);
  two.zero.say(1, 5);
  ASSERT_TRUE(run_until({&two.zero, &two.one}, 10s, [&] { return two.one.heard.size() == 2; }));
  EXPECT_EQ(two.zero.why_lost + two.one.why_lost, "");
}

std::ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST(Peers, many_strangers_take_few_descriptors_and_do_not_keep_a_peer_out) {
  Two two;
  const std::ptrdiff_t before = open_descriptors();
  const auto door = sluice::base::own_end(two.one.place.tcp_listener);
  std::vector<Fd> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(sluice::base::begin_connect(door));
  two.zero.say(1, 0);
  std::ptrdiff_t most = 0;
  ASSERT_TRUE(run_until({&two.zero, &two.one}, 30s, [&] {
    most = std::max(most, open_descriptors());
    return two.one.heard.size() == 1;
  }));
  EXPECT_LT(most, before + 300 + 150);
  EXPECT_EQ(two.zero.why_lost + two.one.why_lost, "");
}

TEST(Peers, a_second_greeting_does_not_replace_the_first) {
  Two two;
  ASSERT_NO_FATAL_FAILURE(two.meet());
  Fd socket = sluice::base::begin_connect(two.one.place.roster.listener_of(1));
  Wire again = Wire::calling(std::move(socket), two.one.place.roster.secret());
  const auto greeting = Writer(Kind::greeting).put(Rank{0}).put(std::uint32_t{0}).take();
  ASSERT_TRUE(run_until({&two.zero, &two.one}, 10s,
                        [&] { return again.send(greeting, {}) == Wire::Sent::yes || again.error() != 0; }));
  ASSERT_TRUE(run_until({&two.zero, &two.one}, 10s, [&] { return is_closed(again.socket()); }));
  two.zero.say(1, 6);
  ASSERT_TRUE(run_until({&two.zero, &two.one}, 10s, [&] { return two.one.heard.size() == 2; }));
  EXPECT_EQ(two.one.links, 1);
}

}  // namespace
