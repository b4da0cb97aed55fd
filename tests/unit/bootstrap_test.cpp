// SPDX-License-Identifier: Apache-2.0
#include "peers/bootstrap.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace {

using sluice::Rank;
using sluice::base::Env;
using sluice::base::Fd;
using sluice::runtime::connect_to;
using sluice::runtime::launched;
using sluice::runtime::listen_as;
using sluice::runtime::new_job;
using sluice::runtime::Place;

Fd accept_on(const Fd& listener) {
  return Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

TEST(Bootstrap, jobs_have_names_of_their_own) {
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) names.insert(new_job());
  EXPECT_EQ(names.size(), 1000U);
  EXPECT_EQ(names.begin()->size(), 32U);
}

TEST(Bootstrap, alone_is_one_rank_of_one) {
  const std::vector<Place> places = sluice::runtime::threads(1);
  const Place& place = places.front();
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.size, 1);
  EXPECT_EQ(place.node_size(), 1);
  EXPECT_TRUE(place.mailbox);
}

TEST(Bootstrap, every_rank_reaches_every_other) {
  const std::string job = new_job();
  std::vector<Fd> listeners;
  for (Rank rank = 0; rank < 4; ++rank) listeners.push_back(listen_as(job, rank));
  for (int from = 0; from < 4; ++from) {
    for (Rank to = 0; to < 4; ++to) {
      const Fd connection = connect_to(job, to);
      ASSERT_TRUE(connection);
      const Fd accepted = accept_on(listeners[static_cast<std::size_t>(to)]);
      ASSERT_TRUE(accepted);
      EXPECT_TRUE(sluice::runtime::trusted(accepted));
      EXPECT_TRUE(sluice::runtime::trusted(connection));
      EXPECT_TRUE(sluice::base::send_packet(connection, std::vector<std::byte>(8, std::byte{7}), {}));
      EXPECT_EQ(sluice::base::receive_packet(accepted)->bytes.size(), 8U);
    }
  }
}

TEST(Bootstrap, every_thread_reaches_every_other) {
  const std::vector<Place> places = sluice::runtime::threads(4);
  ASSERT_EQ(places.size(), 4U);
  for (const Place& from : places) {
    EXPECT_EQ(from.node_size(), 4);
    for (const Place& to : places) {
      EXPECT_TRUE(from.mailbox.connect(to.rank));
      EXPECT_EQ(to.mailbox.arrived().size(), 1U);
    }
  }
}

TEST(Bootstrap, a_rank_that_ended_refuses_at_once) {
  const std::string job = new_job();
  listen_as(job, 1);
  EXPECT_FALSE(connect_to(job, 1));
  EXPECT_EQ(errno, ECONNREFUSED);
  EXPECT_FALSE(connect_to(new_job(), 0));
  EXPECT_EQ(errno, ECONNREFUSED);
}

TEST(Bootstrap, a_full_backlog_says_try_again) {
  const std::string job = new_job();
  const Fd listener = listen_as(job, 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);  // the same full backlog with fewer connections
  std::vector<Fd> waiting;
  for (int i = 0; i < 10; ++i) {
    Fd connection = connect_to(job, 0);
    const int error = errno;
    if (!connection) {
      EXPECT_EQ(error, EAGAIN);
      EXPECT_TRUE(accept_on(listener));
      EXPECT_TRUE(connect_to(job, 0));
      return;
    }
    waiting.push_back(std::move(connection));
  }
  FAIL() << "the backlog never filled";
}

TEST(Bootstrap, two_cannot_listen_as_one_rank) {
  const std::string job = new_job();
  const Fd listener = listen_as(job, 3);
  EXPECT_THROW(listen_as(job, 3), std::system_error);
  EXPECT_THROW(listen_as(std::string(200, 'x'), 3), std::invalid_argument);
}

TEST(Bootstrap, launched_takes_over_the_inherited_socket) {
  Env env;
  env.job = new_job();
  env.rank = 1;
  env.size = 2;
  env.listen_fd = listen_as(env.job, 1).release();
  ASSERT_EQ(::fcntl(env.listen_fd, F_SETFD, 0), 0);
  const Place place = launched(env);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.size, 2);
  EXPECT_EQ(place.node_rank(), 1);
  EXPECT_EQ(place.listener.get(), env.listen_fd);
  EXPECT_EQ(::fcntl(env.listen_fd, F_GETFD), FD_CLOEXEC);
}

TEST(Bootstrap, launched_refuses_what_does_not_fit_together) {
  Env env;
  env.job = new_job();
  const Fd other = listen_as(env.job, 0);
  env.rank = 1;
  env.size = 2;
  EXPECT_THROW(launched(env), std::invalid_argument);  // no socket
  env.listen_fd = other.get();
  EXPECT_THROW(launched(env), std::invalid_argument);  // another rank's
  env.rank = 2;
  EXPECT_THROW(launched(env), std::invalid_argument);  // beyond the size
  env.rank = 0;
  env.listen_fd = STDIN_FILENO;
  EXPECT_THROW(launched(env), std::invalid_argument);  // no socket at all
}

}  // namespace
