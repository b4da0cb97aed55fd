// SPDX-License-Identifier: Apache-2.0
// TCP wires: every message arrives whole and once, and a peer that does not know the secret is ignored.
#include "peers/wire.hpp"

#include <gtest/gtest.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "base/network.hpp"
#include "peers/bootstrap.hpp"

namespace {

using sluice::base::Endpoint;
using sluice::base::Fd;
using sluice::runtime::new_secret;
using sluice::runtime::Secret;
using sluice::runtime::Wire;
using Bytes = std::vector<std::byte>;

const Secret kSecret = new_secret();

Endpoint loopback() { return sluice::base::resolve("127.0.0.1", 0).front(); }

void wait_for(const Fd& socket, short events) {
  pollfd one{socket.get(), events, 0};
  if (::poll(&one, 1, 10'000) != 1) throw std::runtime_error("nothing comes");
}

/// Two connected sockets.
struct Sockets {
  Fd caller;
  Fd called;
};

Sockets connected_sockets() {
  const Fd listener = sluice::base::listen_on(loopback());
  Sockets pair{sluice::base::begin_connect(sluice::base::own_end(listener)), {}};
  wait_for(listener, POLLIN);
  pair.called = sluice::base::accept_one(listener);
  wait_for(pair.caller, POLLOUT);
  return pair;
}

Bytes stamped_packet(std::size_t size, unsigned stamp) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(stamp * 31 + i * 7 + 1);
  return bytes;
}

void write_raw(const Fd& socket, std::span<const std::byte> bytes) {
  ASSERT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

std::span<const std::byte> raw(std::string_view text) { return std::as_bytes(std::span(text)); }

/// Waits for the next packet; it must come.
sluice::base::Packet next(Wire& wire) {
  for (int tries = 0; tries < 1000; ++tries) {
    if (auto packet = wire.receive()) return std::move(*packet);
    wait_for(wire.socket(), POLLIN);
  }
  throw std::runtime_error("no packet");
}

/// Both know each other.
struct Wires {
  Wire out;
  Wire in;
};

Wires opened() {
  Sockets pair = connected_sockets();
  Wires wires{Wire::calling(std::move(pair.caller), kSecret), Wire::called(std::move(pair.called), kSecret)};
  EXPECT_EQ(wires.out.send(stamped_packet(1, 0), {}), Wire::Sent::later);  // not before it was answered
  wait_for(wires.in.socket(), POLLIN);
  EXPECT_FALSE(wires.in.receive());
  wait_for(wires.out.socket(), POLLIN);
  EXPECT_EQ(wires.out.send(stamped_packet(1, 0), {}), Wire::Sent::yes);
  EXPECT_EQ(next(wires.in).bytes, stamped_packet(1, 0));
  return wires;
}

TEST(Wire, packets_arrive_whole_and_in_order) {
  Wires wires = opened();
  for (const std::size_t size : {1U, 2U, 3U, 4U, 5U, 100U, 70'000U, 1'000'000U}) {
    const Bytes packet = stamped_packet(size, static_cast<unsigned>(size));
    Bytes arrived;
    while (wires.out.send(packet, {}) == Wire::Sent::later) {
      if (auto part = wires.in.receive()) arrived = std::move(part->bytes);
    }
    if (arrived.empty()) arrived = next(wires.in).bytes;
    EXPECT_EQ(arrived, packet) << size;
  }
  EXPECT_FALSE(wires.in.receive());
}

TEST(Wire, what_has_no_room_goes_on_where_it_stopped) {
  Wires wires = opened();
  unsigned sent = 0;
  while (wires.out.send(stamped_packet(100'003, sent), {}) == Wire::Sent::yes) ++sent;
  unsigned received = 0;
  for (bool done = false; !done;) {
    while (auto packet = wires.in.receive()) EXPECT_EQ(packet->bytes, stamped_packet(100'003, received++));
    done = wires.out.send(stamped_packet(100'003, sent), {}) == Wire::Sent::yes;
  }
  while (received <= sent) EXPECT_EQ(next(wires.in).bytes, stamped_packet(100'003, received++));
}

TEST(Wire, a_packet_that_comes_byte_by_byte_is_one_packet) {
  Sockets pair = connected_sockets();
  Wire in = Wire::called(std::move(pair.called), kSecret);
  const Bytes packet = stamped_packet(300, 5);
  const auto length = static_cast<std::uint32_t>(packet.size());
  Bytes all(kSecret.begin(), kSecret.end());
  all.insert(all.end(), reinterpret_cast<const std::byte*>(&length), reinterpret_cast<const std::byte*>(&length + 1));
  all.insert(all.end(), packet.begin(), packet.end());
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    write_raw(pair.caller, std::span(all).subspan(i, 1));
    ASSERT_FALSE(in.receive()) << i;
    ASSERT_EQ(in.open(), i + 1 >= sizeof(Secret));
  }
  write_raw(pair.caller, std::span(all).last(1));
  EXPECT_EQ(next(in).bytes, packet);
}

TEST(Wire, the_end_comes_after_what_was_said) {
  Wires wires = opened();
  ASSERT_EQ(wires.out.send(stamped_packet(10, 1), {}), Wire::Sent::yes);
  wires.out = Wire();
  EXPECT_EQ(next(wires.in).bytes, stamped_packet(10, 1));
  EXPECT_TRUE(next(wires.in).closed);
  EXPECT_TRUE(next(wires.in).closed);
  EXPECT_EQ(wires.in.error(), 0);
  EXPECT_EQ(wires.in.send(stamped_packet(1, 1), {}), Wire::Sent::closed);
}

TEST(Wire, a_stranger_is_over_and_learns_nothing) {
  for (const std::string_view text : {"GET / HTTP/1.1\r\n\r\n", "                                "}) {
    Sockets pair = connected_sockets();
    Wire in = Wire::called(std::move(pair.called), kSecret);
    write_raw(pair.caller, raw(text));
    EXPECT_TRUE(next(in).closed);
    EXPECT_FALSE(in.open());
    char byte = 0;
    EXPECT_EQ(::recv(pair.caller.get(), &byte, 1, MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
}

TEST(Wire, a_wrong_secret_is_refused_at_its_end_only) {
  Secret nearly = kSecret;
  nearly.front() ^= std::byte{1};
  Sockets pair = connected_sockets();
  Wire in = Wire::called(std::move(pair.called), kSecret);
  for (std::size_t i = 0; i + 1 < nearly.size(); ++i) {
    write_raw(pair.caller, std::span(nearly).subspan(i, 1));
    ASSERT_FALSE(in.receive()) << "byte " << i << " was told from the right one";
  }
  write_raw(pair.caller, std::span(nearly).last(1));
  EXPECT_TRUE(next(in).closed);
}

TEST(Wire, who_answers_must_know_the_secret_too) {
  Sockets pair = connected_sockets();
  Wire out = Wire::calling(std::move(pair.caller), kSecret);
  EXPECT_EQ(out.send(stamped_packet(9, 1), {}), Wire::Sent::later);
  write_raw(pair.called, kSecret);  // an echo
  wait_for(out.socket(), POLLIN);
  EXPECT_EQ(out.send(stamped_packet(9, 1), {}), Wire::Sent::closed);
  EXPECT_FALSE(out.open());
}

TEST(Wire, a_length_that_cannot_be_is_the_end) {
  for (const std::uint32_t length : {0U, 0xffffffffU}) {
    Sockets pair = connected_sockets();
    Wire in = Wire::called(std::move(pair.called), kSecret);
    write_raw(pair.caller, kSecret);
    write_raw(pair.caller, std::as_bytes(std::span(&length, 1)));
    EXPECT_TRUE(next(in).closed);
  }
}

TEST(Wire, a_refused_call_says_so) {
  Endpoint nobody;
  {
    const Fd listener = sluice::base::listen_on(loopback());
    nobody = sluice::base::own_end(listener);
  }
  Fd socket = sluice::base::begin_connect(nobody);
  const int error = errno;
  if (!socket) {
    EXPECT_EQ(error, ECONNREFUSED);
    return;
  }
  wait_for(socket, POLLOUT);
  Wire out = Wire::calling(std::move(socket), kSecret);
  EXPECT_EQ(out.send(stamped_packet(1, 1), {}), Wire::Sent::closed);
  EXPECT_EQ(out.error(), ECONNREFUSED);
  EXPECT_FALSE(out.reached());
}

TEST(Wire, descriptors_do_not_leave_the_host) {
  Wires wires = opened();
  const int fd = STDIN_FILENO;
  EXPECT_THROW(wires.out.send(stamped_packet(1, 1), std::span(&fd, 1)), std::logic_error);
  EXPECT_THROW(wires.out.send({}, {}), std::invalid_argument);
}

TEST(Network, addresses_are_found_by_name_and_number) {
  EXPECT_EQ(sluice::base::text_of(sluice::base::resolve("127.0.0.1", 80).front()), "127.0.0.1:80");
  EXPECT_EQ(sluice::base::text_of(sluice::base::resolve("::1", 80).front()), "[::1]:80");
  EXPECT_EQ(sluice::base::own_address("lo"), loopback());
  EXPECT_EQ(sluice::base::own_address("127.0.0.1"), loopback());
  EXPECT_NE(sluice::base::own_address("").version, 0);
  EXPECT_THROW(sluice::base::own_address("no-such-interface"), std::invalid_argument);
  EXPECT_THROW(sluice::base::resolve("no such host", 1), std::runtime_error);
}

}  // namespace
