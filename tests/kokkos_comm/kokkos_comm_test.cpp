// SPDX-License-Identifier: Apache-2.0
// KokkosComm's functions with Sluice as their communication space. No MPI is initialised.
#include <sluice/kokkos_comm.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/kokkos/views.hpp"
#include "tests/peers.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;
using Exec = Kokkos::DefaultHostExecutionSpace;
using Queue = kokkos::Queue<Exec>;
using Space = kokkos_comm::CommSpace;
using Handle = KokkosComm::Handle<Exec, Space>;
using Req = KokkosComm::Req<Space>;

static_assert(KokkosComm::CommunicationSpace<Space>);

template <class Value, std::size_t D>
Value value_of(Rank rank, const std::array<Index, D>& at, Index step) {
  Index mixed = rank * 17 + step * 5 + 1;
  for (const Index index : at) mixed = mixed * 3 + index;
  return static_cast<Value>(mixed % 113);
}

template <std::size_t D, class View>
void fill(const View& view, Rank rank, const std::array<Index, D>& extents, Index step) {
  using Value = typename View::value_type;
  for_each_index(extents, [&](const auto& at) { element(view, at) = value_of<Value>(rank, at, step); });
}
template <std::size_t D, class View>
void expect(const View& view, Rank rank, const std::array<Index, D>& extents, Index step) {
  using Value = typename View::value_type;
  int wrong = 0;
  for_each_index(extents, [&](const auto& at) { wrong += element(view, at) != value_of<Value>(rank, at, step); });
  EXPECT_EQ(wrong, 0) << "elements of rank " << rank << " in step " << step;
}

/// `body(handle, queue)` in ranks of each kind, on each kind of stream.
template <class Body>
void run_each(const std::vector<int>& counts, Body body) {
  for (const int ranks : counts) {
    for (const bool processes : {false, true}) {
      for (const bool host_stream : {false, Queue::kTakesHostStreams}) {
        run_peers({.ranks = ranks, .processes = processes}, [&](Context& context) {
          HostStream stream;
          const Queue queue = queue_of<Exec>(stream, host_stream);
          Handle handle(queue, context);
          EXPECT_EQ(handle.rank(), context.rank());
          EXPECT_EQ(handle.size(), ranks);
          body(handle, queue);
          queue.fence("test");
        });
      }
    }
  }
}

/// From rank 0 to rank 1, as KokkosComm's own tests do.
template <class View>
void send_to_next(Handle& handle, const Queue& queue, View view, const std::array<Index, View::rank()>& extents) {
  for (Index step = 0; step < 3; ++step) {
    if (handle.rank() == 0) {
      queue.run([=] { fill(view, 0, extents, step); });
      KokkosComm::wait(KokkosComm::send(handle, view, 1));
    } else {
      KokkosComm::wait(KokkosComm::recv(handle, view, 0));
      queue.run([=] { expect(view, 0, extents, step); });
    }
  }
}

TEST(SendRecv, moves_views_of_all_layouts) {
  run_each({2}, [](Handle& handle, const Queue& queue) {
    send_to_next(handle, queue, make_view<float, Kokkos::LayoutRight>("a", std::array<Index, 1>{1013}), {1013});
    send_to_next(handle, queue, make_view<double, Kokkos::LayoutRight>("b", std::array<Index, 2>{137, 17}), {137, 17});
    send_to_next(handle, queue, make_view<int, Kokkos::LayoutLeft>("c", std::array<Index, 2>{137, 17}), {137, 17});
    send_to_next(handle, queue, make_strided<std::size_t>("d", std::array<Index, 3>{5, 6, 7}), {5, 6, 7});
    send_to_next(handle, queue, make_strided<std::int16_t>("e", std::array<Index, 1>{9}), {9});
  });
}

/// Views of the same extents, which would arrive transposed.
TEST(SendRecv, refuses_views_of_unlike_layouts) {
  run_peers({.ranks = 2, .keep_going = true}, [](Context& context) {
    constexpr std::array<Index, 2> kSquare{5, 5};
    Handle handle(Exec(), context);
    const auto left = make_view<int, Kokkos::LayoutLeft>("left", kSquare);
    const auto right = make_view<int, Kokkos::LayoutRight>("right", kSquare);
    try {
      KokkosComm::wait(context.rank() == 0 ? KokkosComm::send(handle, left, 1) : KokkosComm::recv(handle, right, 0));
      ADD_FAILURE() << "connected";
    } catch (const Error& reason) {
      EXPECT_EQ(reason.code(), Code::mismatch) << reason.what();
    }
    board().meet(context);
  });
}

TEST(SendRecv, may_be_posted_before_anything_is_waited_for) {
  run_each({1, 2, 3}, [](Handle& handle, const Queue& queue) {
    constexpr std::array<Index, 1> kExtents{300};
    std::vector<Kokkos::View<int*, Kokkos::HostSpace>> received;
    std::vector<Req> requests;
    for (Rank peer = 0; peer < handle.size(); ++peer) {
      received.emplace_back("received", 300);
      requests.push_back(KokkosComm::recv(handle, received.back(), peer));
    }
    for (Rank peer = 0; peer < handle.size(); ++peer) {
      Kokkos::View<int*, Kokkos::HostSpace> sent("sent", 300);
      queue.run([=, rank = handle.rank()] { fill(sent, rank, kExtents, peer); });
      requests.push_back(KokkosComm::send(handle, sent, peer));
    }
    KokkosComm::wait_all(requests);
    queue.run([=, rank = handle.rank()] {
      for (Rank peer = 0; peer < handle.size(); ++peer) expect(received[peer], peer, kExtents, rank);
    });
  });
}

/// A halo of a ring: columns of a field, next to which others are sent without a fence between kernels and messages.
TEST(Exchange, is_ordered_with_kernels_on_its_queue) {
  run_each({1, 2, 3}, [](Handle& handle, const Queue& queue) {
    const Kokkos::View<std::int64_t**, Kokkos::LayoutRight, Kokkos::HostSpace> field("field", 40, 5);
    const auto column = [&](int j) { return Kokkos::subview(field, Kokkos::ALL, j); };
    const Rank size = handle.size();
    const Rank left = (handle.rank() + size - 1) % size;
    const Rank right = (handle.rank() + 1) % size;
    queue.parallel_for("begin", 40, [=, rank = handle.rank()](Index i) {
      for (int j = 0; j < 5; ++j) field(i, j) = rank * 100 + i;
    });
    std::vector<std::int64_t> ranks;  // one column of the whole ring
    for (Rank rank = 0; rank < size; ++rank) ranks.push_back(rank * 100);
    for (int step = 0; step < 10; ++step) {
      const Req to_right = kokkos_comm::exchange(handle, column(3), right, column(0), left);
      const Req to_left = kokkos_comm::exchange(handle, column(1), left, column(4), right);
      KokkosComm::wait(to_right);
      KokkosComm::wait(to_left);
      queue.parallel_for("sum", 40, [=](Index i) {
        for (int j = 1; j < 4; ++j) field(i, j) += field(i, 0) + field(i, 4);
      });
      const auto before = ranks;
      for (Rank rank = 0; rank < size; ++rank)
        ranks[rank] += before[(rank + size - 1) % size] + before[(rank + 1) % size];
    }
    queue.run([field, wanted = ranks[handle.rank()]] {
      EXPECT_EQ(field(0, 2), wanted);
      std::int64_t thrice = 39;  // each step adds two neighbours' share of the row's number
      for (int step = 0; step < 10; ++step) thrice *= 3;
      EXPECT_EQ(field(39, 2) - field(0, 2), thrice);
    });
  });
}

TEST(Channel, sends_the_same_views_again) {
  run_each({1, 2, 3}, [](Handle& handle, const Queue& queue) {
    const Rank size = handle.size();
    const Rank right = (handle.rank() + 1) % size;
    const Rank left = (handle.rank() + size - 1) % size;
    constexpr std::array<Index, 2> kExtents{7, 9};
    const auto a = make_view<double, Kokkos::LayoutRight>("a", kExtents);
    const auto b = make_strided<float>("b", kExtents);
    const auto a_there = make_view<double, Kokkos::LayoutRight>("a there", kExtents);
    const auto b_there = make_view<float, Kokkos::LayoutRight>("b there", kExtents);
    kokkos_comm::Channel<Exec> first(handle, right, left, 1);
    kokkos_comm::Channel<Exec> second(handle, left, right, 2);
    first.sendinit(a);
    first.sendinit(b);
    first.recvinit(a_there);
    first.recvinit(b_there);
    const auto back = make_view<int, Kokkos::LayoutLeft>("back", kExtents);
    const auto back_there = make_view<int, Kokkos::LayoutLeft>("back there", kExtents);
    second.sendinit(back);
    second.recvinit(back_there);
    for (Index step = 0; step < 20; ++step) {
      queue.run([=, rank = handle.rank()] {
        fill(a, rank, kExtents, step);
        fill(b, rank, kExtents, step + 1);
        fill(back, rank, kExtents, step + 2);
      });
      first.start();
      second.start();
      first.wait();
      second.wait();
      queue.run([=] {
        expect(a_there, left, kExtents, step);
        expect(b_there, left, kExtents, step + 1);
        expect(back_there, right, kExtents, step + 2);
      });
    }
  });
}

TEST(Channel, is_not_started_twice_nor_added_to_later) {
  run_peers({.ranks = 1}, [](Context& context) {
    Handle handle(Queue{Exec()}, context);
    constexpr std::array<Index, 1> kExtents{5};
    const auto view = make_view<int, Kokkos::LayoutRight>("view", kExtents);
    const auto there = make_view<int, Kokkos::LayoutRight>("there", kExtents);
    kokkos_comm::Channel<Exec> channel(handle, 0, 0, 1);
    channel.sendinit(view);
    channel.recvinit(there);
    channel.start();
    EXPECT_THROW(channel.start(), Error);
    EXPECT_THROW(channel.sendinit(view), Error);
    EXPECT_THROW(channel.recvinit(there), Error);
    channel.wait();
    channel.start();
    channel.wait();
  });
}

/// A peer that is late for longer than the limit.
TEST(Channel, is_waited_for_again_after_a_timeout) {
  run_peers({.ranks = 2, .connect_timeout = 1s}, [](Context& context) {
    Handle handle(Queue{Exec()}, context);
    constexpr std::array<Index, 1> kExtents{5};
    const Rank peer = 1 - context.rank();
    const auto view = make_view<int, Kokkos::LayoutRight>("view", kExtents);
    const auto there = make_view<int, Kokkos::LayoutRight>("there", kExtents);
    kokkos_comm::Channel<Exec> channel(handle, peer, peer, 1);
    channel.sendinit(view);
    channel.recvinit(there);
    if (context.rank() == 1) board().await(0, 1);
    for (Index step = 0; step < 3; ++step) {
      fill(view, context.rank(), kExtents, step);
      channel.start();
      bool over = false;
      while (!over) {
        try {
          channel.wait();
          over = true;
        } catch (const Error& reason) {
          ASSERT_EQ(reason.code(), Code::timeout) << reason.what();
          EXPECT_THROW(channel.start(), Error);
          if (context.rank() == 0) board().set(0, 1);
        }
      }
      expect(there, peer, kExtents, step);
    }
  });
}

/// A receive across a barrier takes the program's message, not the barrier's.
TEST(Barrier, takes_no_message_of_the_program) {
  run_peers({.ranks = 2}, [](Context& context) {
    Handle handle(Queue{Exec()}, context);
    constexpr std::array<Index, 1> kExtents{5};
    const auto view = make_view<int, Kokkos::LayoutRight>("view", kExtents);
    if (context.rank() == 0) {
      const auto request = KokkosComm::recv(handle, view, 1);
      KokkosComm::barrier(Handle(handle));
      KokkosComm::wait(request);
      expect(view, 1, kExtents, 7);
    } else {
      fill(view, 1, kExtents, 7);
      KokkosComm::barrier(Handle(handle));
      KokkosComm::wait(KokkosComm::send(handle, view, 0));
    }
  });
}

/// Rank 1 comes to the barrier once it has the message, whose channel it opens late.
TEST(Barrier, comes_behind_what_was_sent) {
  run_peers({.ranks = 2, .connect_timeout = 5s}, [](Context& context) {
    Handle handle(Queue{Exec()}, context);
    constexpr std::array<Index, 1> kExtents{5};
    const auto view = make_view<int, Kokkos::LayoutRight>("view", kExtents);
    if (context.rank() == 0) {
      fill(view, 0, kExtents, 7);
      const auto request = KokkosComm::send(handle, view, 1);
      board().set(0, 1);
      KokkosComm::barrier(Handle(handle));
      KokkosComm::wait(request);
    } else {
      board().await(0, 1);
      KokkosComm::wait(KokkosComm::recv(handle, view, 0));
      expect(view, 0, kExtents, 7);
      KokkosComm::barrier(Handle(handle));
    }
  });
}

/// After the connect timeout a barrier goes on where it was: the next one takes nothing of it. SLUICE_TIMEOUT ends it.
TEST(Barrier, is_tried_again_after_its_limit) {
  run_peers({.ranks = 2, .timeout = 5s, .connect_timeout = 1s, .keep_going = true}, [](Context& context) {
    Handle handle(Queue{Exec()}, context);
    const auto reached = [&handle] {
      try {
        KokkosComm::barrier(Handle(handle));
        return true;
      } catch (const Error& reason) {
        EXPECT_EQ(reason.code(), Code::timeout) << reason.what();
        return false;
      }
    };
    const auto reached_at_last = [&reached] {
      for (int turn = 0; turn < 20; ++turn) {
        if (reached()) return true;
      }
      return false;
    };
    if (context.rank() == 0) {
      EXPECT_FALSE(reached()) << "alone";
      board().set(0, 1);
      EXPECT_TRUE(reached_at_last());
      board().await(1, 1);  // before it comes to the next
    } else {
      board().await(0, 1);
      EXPECT_TRUE(reached_at_last());
      EXPECT_FALSE(reached()) << "alone";
      EXPECT_FALSE(reached()) << "for good";
      board().set(1, 1);
    }
  });
}

/// Writes of each rank before the barrier are visible to all ranks after it.
TEST(Barrier, holds_up_the_queue_until_all_have_come) {
  for (const bool host_stream : {false, Queue::kTakesHostStreams}) {
    for (const int ranks : {1, 2, 3, 5}) {
      run_peers({.ranks = ranks}, [=](Context& context) {
        HostStream stream;
        const Queue queue = queue_of<Exec>(stream, host_stream);
        for (int turn = 0; turn < 20; ++turn) {
          queue.run([] { board().word(0).fetch_add(1); });
          KokkosComm::barrier(Handle(queue, context, "turn " + std::to_string(turn)));
          queue.run([=] { EXPECT_GE(board().word(0).load(), static_cast<std::uint64_t>(ranks * (turn + 1))); });
        }
        queue.fence("test");
      });
    }
  }
}

}  // namespace
