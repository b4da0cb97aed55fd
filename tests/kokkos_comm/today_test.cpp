// SPDX-License-Identifier: Apache-2.0
// KokkosComm's interface of today with Sluice as its communication space, in ranks of mpiexec.
#include <sluice/kokkos_comm.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using sluice::kokkos_comm::CommSpace;
using Exec = Kokkos::DefaultHostExecutionSpace;
using Communicator = KokkosComm::Communicator<CommSpace, Exec>;
using Request = KokkosComm::Request<CommSpace>;
using Channel = KokkosComm::Channel<CommSpace>;
using View = Kokkos::View<std::int64_t*, Kokkos::HostSpace>;

static_assert(KokkosComm::CommunicationSpace<CommSpace>);
static_assert(!std::is_copy_constructible_v<Communicator> && std::is_nothrow_move_constructible_v<Communicator>);
static_assert(!std::is_copy_constructible_v<Request> && std::is_nothrow_move_assignable_v<Request>);
static_assert(!std::is_copy_constructible_v<Channel> && std::is_nothrow_move_assignable_v<Channel>);

Communicator world() { return Communicator::from_raw(MPI_COMM_WORLD); }

/// A message's elements identify its sender, its receiver and its number.
std::int64_t value_of(int from, int to, int number, std::size_t i) {
  return ((from * 100 + to) * 1000 + number) * 1000 + static_cast<std::int64_t>(i);
}
View message(int from, int to, int number, std::size_t size) {
  View made("message", size);
  for (std::size_t i = 0; i < size; ++i) made(i) = value_of(from, to, number, i);
  return made;
}
void expect_message(const View& view, int from, int to, int number) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < view.extent(0); ++i) wrong += view(i) != value_of(from, to, number, i);
  EXPECT_EQ(wrong, 0U) << "of message " << number << " from " << from << " to " << to;
}

/// Many more than a channel has slots, some of them empty, all posted by all ranks before the first wait.
struct Storm {
  static constexpr int kMessages = 40;

  explicit Storm(Communicator& comm) : rank(comm.rank()), size(comm.size()) {
    for (int number = 0; number < kMessages; ++number) {
      for (int peer = 0; peer < size; ++peer) {
        sent.push_back(message(rank, peer, number, elements(number)));
        requests.push_back(KokkosComm::send(comm, sent.back(), peer));
      }
    }
    for (int number = 0; number < kMessages; ++number) {
      for (int peer = 0; peer < size; ++peer) {
        received.emplace_back("received", elements(number));
        requests.push_back(KokkosComm::recv(comm, received.back(), peer));
      }
    }
  }
  static std::size_t elements(int number) { return static_cast<std::size_t>(number * 7 % 50); }
  void expect_all() const {
    auto next = received.begin();
    for (int number = 0; number < kMessages; ++number) {
      for (int peer = 0; peer < size; ++peer) expect_message(*next++, peer, rank, number);
    }
  }

  int rank, size;
  std::vector<View> sent, received;
  std::vector<Request> requests;
};

TEST(Requests, of_any_number_may_be_posted_before_all_are_waited_for) {
  auto comm = world();
  Storm storm(comm);
  KokkosComm::wait_all(storm.requests);
  storm.expect_all();
}

TEST(Requests, may_be_waited_for_in_any_order) {
  auto comm = world();
  Storm storm(comm);
  std::mt19937 random(static_cast<unsigned>(comm.rank()));
  std::ranges::shuffle(storm.requests, random);
  for (auto& request : storm.requests) request.wait();
  storm.expect_all();
}

TEST(Requests, are_taken_as_they_come) {
  auto comm = world();
  Storm storm(comm);
  std::vector<bool> taken(storm.requests.size());
  for (std::size_t i = 0; i < storm.requests.size(); ++i) {
    const auto one = KokkosComm::wait_any(storm.requests);
    ASSERT_TRUE(one.has_value());
    EXPECT_FALSE(taken[static_cast<std::size_t>(*one)]);
    taken[static_cast<std::size_t>(*one)] = true;
  }
  EXPECT_FALSE(KokkosComm::wait_any(storm.requests).has_value());
  storm.expect_all();
}

TEST(Requests, are_tested_until_they_are_over) {
  auto comm = world();
  Storm storm(comm);
  int called = 0;
  for (auto& request : storm.requests) request.add_callback([&called] { ++called; });
  const auto all = static_cast<int>(storm.requests.size());
  while (called < all) {
    for (auto& request : storm.requests) static_cast<void>(KokkosComm::test(request));
  }
  for (auto& request : storm.requests) EXPECT_TRUE(request.test());
  EXPECT_EQ(called, all);
  storm.expect_all();
}

TEST(Requests, keep_their_views) {
  auto comm = world();
  const int right = (comm.rank() + 1) % comm.size();
  const int left = (comm.rank() + comm.size() - 1) % comm.size();
  View sent = message(comm.rank(), right, 1, 1000);
  View received("received", 1000);
  const View there = received;
  auto request =
      KokkosComm::exchange(comm, Kokkos::View<const std::int64_t*, Kokkos::HostSpace>(sent), right, received, left);
  auto extended = std::make_unique<View>("extended", 5);
  const View still = *extended;
  request.extend_view_lifetime(*extended);
  extended.reset();
  EXPECT_EQ(still.use_count(), 2);
  sent = {};
  received = {};
  Request moved = std::move(request);
  moved.wait();
  expect_message(there, left, comm.rank(), 1);
  EXPECT_EQ(still.use_count(), 1);
  EXPECT_TRUE(Request().test());
}

TEST(Exchange, moves_views_with_gaps_and_of_none) {
  auto comm = world();
  const int right = (comm.rank() + 1) % comm.size();
  const int left = (comm.rank() + comm.size() - 1) % comm.size();
  const Kokkos::View<int**, Kokkos::LayoutRight, Kokkos::HostSpace> field("field", 30, 7);
  for (int step = 0; step < 5; ++step) {
    Kokkos::deep_copy(field, comm.rank() * 10 + step);
    KokkosComm::exchange(comm, Kokkos::subview(field, Kokkos::ALL, 5), right, Kokkos::subview(field, Kokkos::ALL, 0),
                         left)
        .wait();
    for (int i = 0; i < 30; ++i) EXPECT_EQ(field(i, 0), left * 10 + step);
    const View none("none", 0);
    KokkosComm::exchange(comm, none, right, none, left).wait();
  }
}

TEST(Communicators, of_one_handle_are_one_and_duplicates_are_others) {
  auto first = world();
  auto second = world();
  auto other = first.duplicate();
  ASSERT_TRUE(other.has_value());
  EXPECT_NE(other->comm(), first.comm());
  EXPECT_EQ(first.comm(), MPI_COMM_WORLD);
  const int peer = first.size() - 1 - first.rank();
  const View one = message(first.rank(), peer, 1, 10), two = message(first.rank(), peer, 2, 10);
  View from_other("other", 10), from_first("first", 10);
  std::vector<Request> requests;
  requests.push_back(KokkosComm::send(first, one, peer));
  requests.push_back(KokkosComm::send(*other, two, peer));
  requests.push_back(KokkosComm::recv(*other, from_other, peer));
  requests.push_back(KokkosComm::recv(second, from_first, peer));
  KokkosComm::wait_all(requests);
  expect_message(from_first, peer, first.rank(), 1);
  expect_message(from_other, peer, first.rank(), 2);
}

TEST(Communicators, are_split_and_duplicated_again_and_again) {
  auto comm = world();
  for (int turn = 0; turn < 5; ++turn) {
    auto half = comm.split(comm.rank() % 2, -comm.rank());
    ASSERT_TRUE(half.has_value());
    EXPECT_EQ(half->size(), (comm.size() + 1 - comm.rank() % 2) / 2);
    auto again = half->duplicate();
    const int peer = half->size() - 1 - half->rank();
    View received("received", 20);
    auto request = KokkosComm::exchange(*again, message(half->rank(), peer, turn, 20), peer, received, peer);
    request.wait();
    expect_message(received, peer, half->rank(), turn);
    *again = std::move(*half);
    EXPECT_EQ(again->size(), (comm.size() + 1 - comm.rank() % 2) / 2);
  }
  EXPECT_FALSE(comm.split(MPI_UNDEFINED, 0).has_value());
}

TEST(Communicators, go_on_in_other_instances) {
  const auto instances = Kokkos::Experimental::partition_space(Exec(), 1);
  for (int step = 0; step < 4; ++step) {
    auto comm = Communicator::from_raw(MPI_COMM_WORLD, step % 2 == 0 ? Exec() : instances[0]);
    View received("received", 10);
    KokkosComm::exchange(comm, message(comm.rank(), comm.rank(), step, 10), comm.rank(), received, comm.rank()).wait();
    expect_message(received, comm.rank(), comm.rank(), step);
  }
}

/// Enqueued, without a fence in the loop.
TEST(Communicators, of_a_context_move_on_host_streams) {
  sluice::HostStream stream;
  const sluice::kokkos::Queue<Exec> queue(Exec(), stream);
  auto comm = Communicator::from_context(queue, sluice::mpi::context(MPI_COMM_WORLD), "streams");
  EXPECT_EQ(comm.comm(), MPI_COMM_NULL);
  const int right = (comm.rank() + 1) % comm.size();
  const int left = (comm.rank() + comm.size() - 1) % comm.size();
  const View sent("sent", 50), received("received", 50);
  for (int step = 0; step < 20; ++step) {
    queue.parallel_for("fill", 50, [=, rank = comm.rank()](std::int64_t i) {
      sent(i) = value_of(rank, right, step, static_cast<std::size_t>(i));
    });
    KokkosComm::exchange(comm, sent, right, received, left).wait();
    queue.run([=, rank = comm.rank()] { expect_message(received, left, rank, step); });
  }
  queue.fence("test");
}

TEST(Channels, are_moved_and_started_again) {
  auto comm = world();
  const int right = (comm.rank() + 1) % comm.size();
  const int left = (comm.rank() + comm.size() - 1) % comm.size();
  for (int turn = 0; turn < 2; ++turn) {
    const View sent("sent", 30), received("received", 30), none("none", 0);
    Channel made(right, left, 7, MPI_COMM_WORLD);
    made.sendinit(sent);
    made.sendinit(none);
    Channel channel = std::move(made);
    channel.recvinit(received);
    channel.recvinit(none);
    for (int step = 0; step < 5; ++step) {
      Kokkos::deep_copy(sent, message(comm.rank(), right, step, 30));
      channel.start();
      channel.wait();
      expect_message(received, left, comm.rank(), step);
    }
  }
}

/// Each rank waits for what the other waits for last: puts that a start could not do are done by whatever waits.
TEST(Channels, and_messages_may_be_waited_for_in_any_order) {
  auto comm = world();
  const int peer = comm.size() == 3 ? (3 - comm.rank()) % 3 : comm.size() - 1 - comm.rank();
  const View to_x("x", 20), to_y("y", 20), from_x("x", 20), from_y("y", 20);
  Channel x(peer, peer, 1, MPI_COMM_WORLD), y(peer, peer, 2, MPI_COMM_WORLD);
  x.sendinit(to_x);
  x.recvinit(from_x);
  y.sendinit(to_y);
  y.recvinit(from_y);
  const bool first = comm.rank() < peer;
  for (int step = 0; step < 10; ++step) {
    Kokkos::deep_copy(to_x, message(comm.rank(), peer, step, 20));
    Kokkos::deep_copy(to_y, message(comm.rank(), peer, step + 50, 20));
    View received("received", 100 + 100 * static_cast<std::size_t>(step));  // a new channel each time
    auto sent = KokkosComm::send(comm, message(comm.rank(), peer, step, received.extent(0)), peer);
    if (first) {
      x.start();
      y.start();
      x.wait();
      y.wait();
      KokkosComm::recv(comm, received, peer).wait();
    } else {
      KokkosComm::recv(comm, received, peer).wait();
      y.start();
      x.start();
      y.wait();
      x.wait();
    }
    sent.wait();
    expect_message(received, peer, comm.rank(), step);
    expect_message(from_x, peer, comm.rank(), step);
    expect_message(from_y, peer, comm.rank(), step + 50);
  }
}

TEST(Communicators, without_mpi_are_not_split) {
  auto comm = Communicator::from_context(sluice::kokkos::Queue<Exec>(Exec()), sluice::mpi::context(MPI_COMM_WORLD));
  EXPECT_THROW(static_cast<void>(comm.split(0, 0)), sluice::Error);
  EXPECT_THROW(static_cast<void>(comm.duplicate()), sluice::Error);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  MPI_Init(&argc, &argv);
  Kokkos::initialize(argc, argv);
  const int code = RUN_ALL_TESTS();
  Kokkos::finalize();
  MPI_Finalize();
  return code;
}
