// SPDX-License-Identifier: Apache-2.0
#include "peers/mailbox.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using sluice::base::Fd;
using sluice::runtime::LineEnd;
using sluice::runtime::Mailbox;

/// True once after each ring.
bool rung(const Mailbox& mailbox) {
  std::uint64_t count = 0;
  return ::read(mailbox.waker()->fd().get(), &count, sizeof count) == sizeof count;
}

std::vector<std::byte> word(unsigned value) { return std::vector<std::byte>(8, static_cast<std::byte>(value)); }

struct Talk {
  std::vector<Mailbox> mailboxes = Mailbox::of_threads(2);
  LineEnd out = mailboxes[0].connect(1);
  LineEnd in = std::move(mailboxes[1].arrived().front());
};

TEST(Mailboxes, carry_packets_in_order_and_wake_the_receiver) {
  Talk talk;
  EXPECT_TRUE(rung(talk.mailboxes[1]));
  for (const unsigned value : {1U, 2U}) ASSERT_TRUE(talk.out.send(word(value), {}));
  EXPECT_TRUE(rung(talk.mailboxes[1]));
  EXPECT_FALSE(rung(talk.mailboxes[0]));
  for (const unsigned value : {1U, 2U}) EXPECT_EQ(talk.in.receive()->bytes, word(value));
  EXPECT_FALSE(talk.in.receive());
}

TEST(Mailboxes, carry_copies_of_descriptors) {
  Talk talk;
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Fd reader(ends[0]);
  {
    const Fd writer(ends[1]);
    ASSERT_TRUE(talk.out.send(word(1), std::array{writer.get()}));
  }
  const auto packet = talk.in.receive();
  ASSERT_EQ(packet->fds.size(), 1U);
  EXPECT_EQ(::fcntl(packet->fds[0].get(), F_GETFD), FD_CLOEXEC);
  ASSERT_EQ(::write(packet->fds[0].get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 1);
}

TEST(Mailboxes, tell_the_end_of_a_line_after_its_last_packet) {
  Talk talk;
  ASSERT_TRUE(talk.out.send(word(3), {}));
  EXPECT_FALSE(talk.in.hung_up());
  talk.out = LineEnd();
  EXPECT_TRUE(rung(talk.mailboxes[1]));
  EXPECT_TRUE(talk.in.hung_up());
  EXPECT_EQ(talk.in.receive()->bytes, word(3));
  EXPECT_TRUE(talk.in.receive()->closed);
}

TEST(Mailboxes, tell_a_sender_that_nobody_listens_any_more) {
  Talk talk;
  talk.in = LineEnd();
  EXPECT_TRUE(rung(talk.mailboxes[0]));
  EXPECT_TRUE(talk.out.hung_up());
  EXPECT_FALSE(talk.out.send(word(4), {}));
}

TEST(Mailboxes, that_are_gone_refuse_lines_and_end_those_that_had_come) {
  std::vector<Mailbox> mailboxes = Mailbox::of_threads(2);
  const LineEnd waits = mailboxes[0].connect(1);
  ASSERT_TRUE(waits);
  mailboxes.pop_back();
  EXPECT_TRUE(rung(mailboxes[0]));
  EXPECT_TRUE(waits.hung_up());
  EXPECT_FALSE(mailboxes[0].connect(1));
}

}  // namespace
