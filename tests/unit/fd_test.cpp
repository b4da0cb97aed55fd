// SPDX-License-Identifier: Apache-2.0
#include "base/fd.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <numeric>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using sluice::base::Fd;
using sluice::base::receive_packet;
using sluice::base::send_packet;

struct Ends {
  Fd here;
  Fd there;
};

Ends connected() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

std::vector<std::byte> stamped(std::size_t bytes, unsigned stamp) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(stamp + i * 7);
  return data;
}

bool open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(Fd, closes_what_it_owns_and_only_that) {
  const int raw = ::memfd_create("test", MFD_CLOEXEC);
  {
    Fd first(raw);
    Fd second(std::move(first));
    EXPECT_EQ(second.get(), raw);
    EXPECT_TRUE(open(raw));
  }
  EXPECT_FALSE(open(raw));
}

// The exit code of `body` in a child without standard descriptors.
template <class Body>
int without_standard_descriptors(Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(fd);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST(Fd, is_never_a_standard_descriptor) {
  EXPECT_EQ(without_standard_descriptors([] {
              const Fd memory(::memfd_create("test", MFD_CLOEXEC));
              if (memory.get() <= STDERR_FILENO || ::fcntl(memory.get(), F_GETFD) != FD_CLOEXEC) return 1;
              for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
                if (::fcntl(fd, F_GETFD) >= 0) return 2;
              return 0;
            }),
            0);
}

TEST(Fd, without_room_beyond_the_standard_descriptors_is_empty) {
  EXPECT_EQ(without_standard_descriptors([] {
              const rlimit three{3, 3};
              ::setrlimit(RLIMIT_NOFILE, &three);
              const Fd memory(::memfd_create("test", MFD_CLOEXEC));
              return !memory && sluice::base::lacks_descriptors(errno) && ::fcntl(STDIN_FILENO, F_GETFD) < 0 ? 0 : 1;
            }),
            0);
}

// The exit code of `body` in a child that may open this many more descriptors, and by its hard limit so many.
template <class Body>
int with_room_for(rlim_t soft, rlim_t hard, Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto next = static_cast<rlim_t>(::dup(STDERR_FILENO));
    ::close_range(static_cast<unsigned>(next), ~0U, 0);
    const rlimit few{next + soft, next + hard};
    ::setrlimit(RLIMIT_NOFILE, &few);
    ::_exit(body(next));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

rlim_t soft_limit() {
  rlimit now{};
  ::getrlimit(RLIMIT_NOFILE, &now);
  return now.rlim_cur;
}

TEST(Descriptors, get_room_for_what_is_needed_and_a_little) {
  EXPECT_EQ(with_room_for(4, 1000,
                          [](rlim_t next) {
                            if (!sluice::base::make_room_for_descriptors(4) || soft_limit() != next + 4) return 1;
                            if (!sluice::base::make_room_for_descriptors(100) || soft_limit() != next + 132) return 2;
                            return 0;
                          }),
            0);
}

TEST(Descriptors, get_room_where_none_is_left) {
  EXPECT_EQ(with_room_for(0, 1000,
                          [](rlim_t) {
                            const auto open = [] { return ::memfd_create("test", MFD_CLOEXEC); };
                            return !Fd(open()) && sluice::base::open_with_room(open) ? 0 : 1;
                          }),
            0);
}

TEST(Descriptors, beyond_the_hard_limit_change_nothing_and_are_told) {
  EXPECT_EQ(with_room_for(4, 100,
                          [](rlim_t next) {
                            if (sluice::base::make_room_for_descriptors(101) || soft_limit() != next + 4) return 1;
                            if (!sluice::base::make_room_for_descriptors(90) || soft_limit() != next + 100) return 2;
                            const std::string why = sluice::base::lack_of_descriptors(101);
                            const bool told =
                                why.find(std::to_string(next + 101) + " open files") != std::string::npos &&
                                why.find(std::to_string(next + 100) + " (ulimit -Hn)") != std::string::npos;
                            return told ? 0 : 3;
                          }),
            0);
}

TEST(Fd, closed_standard_descriptors_are_filled_and_open_ones_kept) {
  EXPECT_EQ(without_standard_descriptors([] {
              std::array<int, 2> ends{};
              if (::pipe(ends.data()) != 0) return 1;  // 0 and 1
              sluice::base::fill_standard_descriptors();
              char byte = 'x';
              if (::write(ends[1], &byte, 1) != 1 || ::read(ends[0], &byte, 1) != 1) return 2;
              return ::write(STDERR_FILENO, &byte, 1) == 1 ? 0 : 3;
            }),
            0);
}

TEST(Fd, assignment_closes_the_old_one) {
  const int old = ::memfd_create("old", MFD_CLOEXEC);
  const int young = ::memfd_create("young", MFD_CLOEXEC);
  Fd fd(old);
  fd = Fd(young);
  EXPECT_FALSE(open(old));
  EXPECT_EQ(fd.get(), young);
}

TEST(Fd, release_gives_it_up) {
  const int raw = ::memfd_create("test", MFD_CLOEXEC);
  Fd fd(raw);
  EXPECT_EQ(fd.release(), raw);
  EXPECT_FALSE(fd);
  EXPECT_TRUE(open(raw));
  ::close(raw);
}

TEST(Packet, arrives_whole_and_in_order_whatever_its_length) {
  const auto [here, there] = connected();
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{70000}}) {
    const auto sent = stamped(bytes, 1);
    const auto next = stamped(bytes + 1, 2);
    ASSERT_TRUE(send_packet(here, sent, {}));
    ASSERT_TRUE(send_packet(here, next, {}));
    EXPECT_EQ(receive_packet(there)->bytes, sent);
    EXPECT_EQ(receive_packet(there)->bytes, next);
  }
  EXPECT_FALSE(receive_packet(there).has_value());
}

TEST(Packet, carries_descriptors_that_close_on_exec) {
  const auto [here, there] = connected();
  const Fd memory(::memfd_create("test", 0));
  const auto contents = stamped(64, 3);
  ASSERT_EQ(::write(memory.get(), contents.data(), contents.size()), 64);
  const std::vector<int> fds(sluice::base::kMaxPacketFds, memory.get());
  ASSERT_TRUE(send_packet(here, stamped(5, 1), fds));
  const auto packet = receive_packet(there);
  ASSERT_TRUE(packet.has_value());
  ASSERT_EQ(packet->fds.size(), fds.size());
  for (const Fd& fd : packet->fds) {
    EXPECT_EQ(::fcntl(fd.get(), F_GETFD), FD_CLOEXEC);
    std::vector<std::byte> seen(64);
    ASSERT_EQ(::pread(fd.get(), seen.data(), seen.size(), 0), 64);
    EXPECT_EQ(seen, contents);
  }
}

TEST(Packet, a_full_socket_takes_nothing_and_loses_nothing) {
  const auto [here, there] = connected();
  unsigned sent = 0;
  while (send_packet(here, stamped(1000, sent), {})) ++sent;
  ASSERT_GT(sent, 0U);
  for (unsigned i = 0; i < sent; ++i) ASSERT_EQ(receive_packet(there)->bytes, stamped(1000, i));
  EXPECT_FALSE(receive_packet(there).has_value());
  EXPECT_TRUE(send_packet(here, stamped(1000, sent), {}));
}

TEST(Packet, what_a_dead_peer_had_sent_is_received_before_the_end) {
  auto [here, there] = connected();
  ASSERT_TRUE(send_packet(here, stamped(10, 1), {}));
  ASSERT_TRUE(send_packet(there, stamped(10, 2), {}));  // never read there: the end comes as a reset
  here = Fd();
  EXPECT_EQ(receive_packet(there)->bytes, stamped(10, 1));
  EXPECT_TRUE(receive_packet(there)->closed);
  EXPECT_TRUE(receive_packet(there)->closed);
}

TEST(Packet, sending_to_a_dead_peer_throws_and_raises_no_signal) {
  auto [here, there] = connected();
  there = Fd();
  try {
    send_packet(here, stamped(10, 1), {});
    FAIL() << "nothing was thrown";
  } catch (const std::system_error& error) {
    EXPECT_TRUE(error.code().value() == EPIPE || error.code().value() == ECONNRESET) << error.what();
  }
}

TEST(Packet, one_whose_descriptors_do_not_fit_waits_until_they_do) {
  const auto [here, there] = connected();
  const std::vector<int> fds(3, here.get());
  ASSERT_TRUE(send_packet(here, stamped(10, 1), fds));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const Fd next(::dup(here.get()));
  const rlimit room_for_one{static_cast<rlim_t>(next.get()) + 2, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &room_for_one), 0);
  try {
    receive_packet(there);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), EMFILE);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const auto packet = receive_packet(there);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->bytes, stamped(10, 1));
  EXPECT_EQ(packet->fds.size(), 3U);
  EXPECT_FALSE(receive_packet(there).has_value());
}

TEST(Packet, one_that_is_empty_or_has_too_many_descriptors_is_refused) {
  const auto [here, there] = connected();
  EXPECT_THROW(send_packet(here, {}, {}), std::invalid_argument);
  const std::vector<int> fds(sluice::base::kMaxPacketFds + 1, here.get());
  EXPECT_THROW(send_packet(here, stamped(1, 1), fds), std::invalid_argument);
  EXPECT_FALSE(receive_packet(there).has_value());
}

TEST(Fd, all_of_a_text_is_written_or_the_error_names_the_place) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Fd reader(ends[0]);
  const Fd writer(ends[1]);
  sluice::base::write_all(writer.get(), "all of it", "a pipe");
  std::array<char, 16> text{};
  EXPECT_EQ(::read(reader.get(), text.data(), text.size()), 9);
  EXPECT_STREQ(text.data(), "all of it");
  const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  try {
    sluice::base::write_all(full.get(), "text", "the report");
    ADD_FAILURE() << "written";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), ENOSPC);
    EXPECT_EQ(std::string(error.what()).find("cannot write to the report: "), 0U) << error.what();
  }
}

}  // namespace
