// SPDX-License-Identifier: Apache-2.0
// Messages and Channels on streams of a GPU, or of an emulated one. Behind a wait, a stream does nothing: what the host
// could not put before, as its peer had not opened the channel yet, must be put ahead of it.
#include "tests/kokkos/gpu_queue.hpp"

#include <sluice/kokkos_comm.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

#include "tests/kokkos/views.hpp"
#include "tests/peers.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;
using Queue = kokkos::Queue<OnGpu>;
using Space = kokkos_comm::CommSpace;
using Handle = KokkosComm::Handle<OnGpu, Space>;
using Channel = kokkos_comm::Channel<OnGpu>;
using Messages = kokkos::Messages<OnGpu>;
using View = Kokkos::View<std::int32_t*, Kokkos::HostSpace>;

class OnStreamsOfAGpu : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!why_no_gpu().empty()) GTEST_SKIP() << why_no_gpu();
  }
  Peers peers(int ranks = 2) const { return {.ranks = ranks, .processes = GetParam(), .timeout = 10s}; }
};
INSTANTIATE_TEST_SUITE_P(All, OnStreamsOfAGpu, testing::Bool(),
                         [](const auto& one) { return one.param ? "processes_cuda_stream" : "threads_cuda_stream"; });

constexpr std::size_t kFew = 10, kMany = 5000;  // elements; the many do not fit where the few went

void fill(const Queue& queue, const View& view, std::int32_t value) {
  queue.run([=] { Kokkos::deep_copy(view, value); });
}
void expect(const Queue& queue, const View& view, std::int32_t value) {
  queue.run([=] {
    int wrong = 0;
    for (std::size_t i = 0; i < view.extent(0); ++i) wrong += view(i) != value;
    EXPECT_EQ(wrong, 0) << "elements that are not " << value;
  });
}

/// One of two ranks, with its stream.
struct Pair {
  explicit Pair(Context& context) : first(context.rank() == 0), peer(1 - context.rank()), queue(stream) {}
  /// Opens the channels of the few, both ways.
  void connect(Handle& handle) const {
    const View sent("sent", kFew), received("received", kFew);
    auto in = KokkosComm::recv(handle, received, peer);
    auto out = KokkosComm::send(handle, sent, peer);
    KokkosComm::wait(in);
    KokkosComm::wait(out);
  }

  const bool first;
  const Rank peer;
  GpuStream stream;
  Queue queue;
};

/// With a handle whose channels of the few are open.
struct ConnectedPair : Pair {
  explicit ConnectedPair(Context& context) : Pair(context), handle(queue, context) { connect(handle); }
  /// A Channel of one View, from one rank to the other.
  Channel channel(const View& view, bool sends) {
    Channel opened(handle, peer, peer, 1);
    sends ? opened.sendinit(view) : opened.recvinit(view);
    return opened;
  }

  Handle handle;
};

TEST_P(OnStreamsOfAGpu, a_ring_needs_no_fence) {
  run_peers(peers(3), [](Context& context) {
    GpuStream stream;
    const Queue queue(stream);
    Handle handle(queue, context);
    const Rank right = (context.rank() + 1) % 3, left = (context.rank() + 2) % 3;
    Channel channel(handle, right, left, 1);
    const auto gaps_out = make_strided<std::int32_t>("out", std::array<Index, 2>{20, 3});
    const auto gaps_in = make_strided<std::int32_t>("in", std::array<Index, 2>{20, 3});
    channel.sendinit(gaps_out);
    channel.sendinit(View("none", 0));
    channel.recvinit(gaps_in);
    channel.recvinit(View("none", 0));
    const View sent("sent", kMany), received("received", kMany);
    for (int step = 0; step < 30; ++step) {
      queue.run([=, rank = context.rank()] {
        Kokkos::deep_copy(sent, rank * 100 + step);
        Kokkos::deep_copy(gaps_out, rank * 100 + step + 50);
      });
      channel.start();
      KokkosComm::wait(kokkos_comm::exchange(handle, sent, right, received, left));
      channel.wait();
      expect(queue, received, left * 100 + step);
      queue.run([=] {
        for (int i = 0; i < 60; ++i) EXPECT_EQ(gaps_in(i / 3, i % 3), left * 100 + step + 50);
      });
    }
    queue.fence("test");
  });
}

/// Rank 1 needs the Channel's View before it sends what rank 0 waits for.
TEST_P(OnStreamsOfAGpu, a_wait_for_a_message_comes_behind_what_channels_have_started) {
  run_peers(peers(), [](Context& context) {
    ConnectedPair pair(context);
    const View sent("sent", kFew), received("received", kFew), message("message", kFew);
    Channel channel = pair.channel(pair.first ? sent : received, pair.first);
    if (pair.first) {
      fill(pair.queue, sent, 7);
      channel.start();
      board().set(0, 1);
      KokkosComm::wait(KokkosComm::recv(pair.handle, message, 1));
      expect(pair.queue, message, 8);
      channel.wait();
    } else {
      board().await(0, 1);
      channel.start();
      channel.wait();
      fill(pair.queue, message, 1);
      pair.queue.run([=] {
        for (std::size_t i = 0; i < kFew; ++i) message(i) += received(i);
      });
      KokkosComm::wait(KokkosComm::send(pair.handle, message, 0));
    }
    context.synchronize(pair.queue.stream());
  });
}

/// Rank 1 needs the many before it starts what rank 0 waits for.
TEST_P(OnStreamsOfAGpu, a_wait_for_a_channel_comes_behind_messages) {
  run_peers(peers(), [](Context& context) {
    ConnectedPair pair(context);
    const View view("view", kFew), many("many", kMany);
    Channel channel = pair.channel(view, !pair.first);
    channel.start();
    channel.wait();
    context.synchronize(pair.queue.stream());
    if (pair.first) {
      channel.start();
      fill(pair.queue, many, 7);
      const auto sent = KokkosComm::send(pair.handle, many, 1);
      board().set(0, 1);
      channel.wait();
      expect(pair.queue, view, 7);
      KokkosComm::wait(sent);
    } else {
      board().await(0, 1);
      KokkosComm::wait(KokkosComm::recv(pair.handle, many, 0));
      pair.queue.run([=] { Kokkos::deep_copy(view, many(kMany - 1)); });
      channel.start();
      channel.wait();
    }
    context.synchronize(pair.queue.stream());
  });
}

/// As before, of messages alone, and without a wait of the host.
TEST_P(OnStreamsOfAGpu, a_message_is_not_over_behind_what_is_not_put) {
  run_peers(peers(), [](Context& context) {
    const Pair pair(context);
    Messages all(context, pair.queue, "all");
    const View few("few", kFew), many("many", kMany);
    const auto connected = all.send(few, pair.peer);
    all.wait(all.receive(few, pair.peer));
    all.wait(connected);
    if (pair.first) {
      const auto sent = all.send(many, 1);
      const auto received = all.receive(few, 1);
      EXPECT_FALSE(all.test(received));
      board().set(0, 1);
      while (!all.test(received)) std::this_thread::yield();
      all.wait(sent);
    } else {
      board().await(0, 1);
      all.wait(all.receive(many, 0));
      all.wait(all.send(few, 0));
    }
    context.synchronize(pair.queue.stream());
  });
}

/// Rank 1 sends the second message once it has what rank 0 sends after the first.
TEST_P(OnStreamsOfAGpu, a_test_enqueues_no_wait_for_later_messages) {
  run_peers(peers(), [](Context& context) {
    const Pair pair(context);
    Messages all(context, pair.queue, "all");
    const View one("one", kFew), two("two", kFew), answer("answer", kFew);
    if (pair.first) {
      const auto first = all.receive(one, 1);
      const auto second = all.receive(two, 1);
      while (!all.test(first)) std::this_thread::yield();
      expect(pair.queue, one, 1);
      all.wait(all.send(answer, 1));
      all.wait(second);
      expect(pair.queue, two, 2);
    } else {
      fill(pair.queue, one, 1);
      fill(pair.queue, two, 2);
      all.wait(all.send(one, 0));
      all.wait(all.receive(answer, 0));
      all.wait(all.send(two, 0));
    }
    context.synchronize(pair.queue.stream());
  });
}

/// The wait returns before the peer sends, and before the peer receives the message on the other stream.
TEST_P(OnStreamsOfAGpu, a_wait_is_not_held_up_by_what_another_stream_has_not_put) {
  run_peers(peers(), [](Context& context) {
    ConnectedPair pair(context);
    GpuStream other_stream;
    const Queue other_queue(other_stream);
    Handle other(other_queue, context, "other");
    const View few("few", kFew), many("many", kMany);
    if (pair.first) {
      const auto sent = KokkosComm::send(other, many, 1);
      KokkosComm::wait(KokkosComm::recv(pair.handle, few, 1));
      board().set(0, 1);
      KokkosComm::wait(sent);
    } else {
      board().await(0, 1);
      KokkosComm::wait(KokkosComm::send(pair.handle, few, 0));
      KokkosComm::wait(KokkosComm::recv(other, many, 0));
    }
    context.synchronize(pair.queue.stream());
    context.synchronize(other_queue.stream());
  });
}

/// The peer has put by the time that the stream comes to what was enqueued before `start`.
TEST_P(OnStreamsOfAGpu, a_view_is_written_after_what_comes_before_the_first_start) {
  run_peers(peers(), [](Context& context) {
    ConnectedPair pair(context);  // after which nothing is left that waits for the stream by itself
    context.synchronize(pair.queue.stream());
    const View view("view", kFew);
    Channel channel = pair.channel(view, pair.first);
    if (!pair.first) pair.queue.run([] { std::this_thread::sleep_for(200ms); });
    fill(pair.queue, view, pair.first ? 5 : 0);
    channel.start();
    channel.wait();
    expect(pair.queue, view, 5);
    context.synchronize(pair.queue.stream());
  });
}

/// Both ranks wait for the few before they post the receive of the many.
TEST_P(OnStreamsOfAGpu, what_has_landed_is_taken_though_something_is_not_put) {
  run_peers(peers(), [](Context& context) {
    const Pair pair(context);
    Handle handle(pair.queue, context), other(pair.queue, context, "other");
    Channel channel(handle, pair.peer, pair.peer, 1);
    const View sent("sent", kFew), received("received", kFew), few("few", kFew), many("many", kMany),
        come("come", kMany);
    channel.sendinit(sent);
    channel.recvinit(received);
    pair.connect(handle);
    channel.start();
    channel.wait();
    fill(pair.queue, many, context.rank());
    const auto out = KokkosComm::send(other, many, pair.peer);
    fill(pair.queue, sent, context.rank() + 20);
    channel.start();
    channel.wait();
    expect(pair.queue, received, pair.peer + 20);
    fill(pair.queue, few, context.rank() + 10);
    const auto out_few = KokkosComm::send(handle, few, pair.peer);
    KokkosComm::wait(KokkosComm::recv(handle, received, pair.peer));
    expect(pair.queue, received, pair.peer + 10);
    KokkosComm::wait(out_few);
    KokkosComm::wait(KokkosComm::recv(other, come, pair.peer));
    expect(pair.queue, come, pair.peer);
    KokkosComm::wait(out);
    context.synchronize(pair.queue.stream());
  });
}

/// Rank 1 gives the Channel's View back once it has the many.
TEST_P(OnStreamsOfAGpu, a_put_that_waits_for_credit_comes_behind_what_was_sent_before) {
  run_peers(peers(), [](Context& context) {
    ConnectedPair pair(context);
    const View view("view", kFew), many("many", kMany);
    Channel channel = pair.channel(view, pair.first);
    fill(pair.queue, view, pair.first ? 5 : 0);
    channel.start();
    channel.wait();
    if (pair.first) {
      const auto sent = KokkosComm::send(pair.handle, many, 1);
      fill(pair.queue, view, 6);
      channel.start();
      board().set(0, 1);
      channel.wait();
      KokkosComm::wait(sent);
    } else {
      expect(pair.queue, view, 5);
      board().await(0, 1);
      KokkosComm::wait(KokkosComm::recv(pair.handle, many, 0));
      channel.start();
      channel.wait();
      expect(pair.queue, view, 6);
    }
    context.synchronize(pair.queue.stream());
  });
}

/// Rank 1 opens the channel of the few once its host has the many, which rank 0 sends on another stream.
TEST_P(OnStreamsOfAGpu, a_wait_for_a_peer_puts_what_goes_on_other_streams) {
  run_peers(peers(), [](Context& context) {
    const Pair pair(context);
    GpuStream other_stream;
    const Queue other_queue(other_stream);
    Handle handle(pair.queue, context), other(other_queue, context, "other");
    const View few("few", kFew), many("many", kMany);
    if (pair.first) {
      const auto sent = KokkosComm::send(other, many, 1);
      board().set(0, 1);
      KokkosComm::wait(KokkosComm::recv(handle, few, 1));
      KokkosComm::wait(sent);
    } else {
      board().await(0, 1);
      KokkosComm::wait(KokkosComm::recv(other, many, 0));
      context.synchronize(other_queue.stream());
      KokkosComm::wait(KokkosComm::send(handle, few, 0));
    }
    context.synchronize(pair.queue.stream());
    context.synchronize(other_queue.stream());
  });
}

template <class Work>
std::string failure_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::timeout) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no failure";
  return {};
}

/// Nothing has changed then, and the wait can be tried again.
TEST_P(OnStreamsOfAGpu, a_wait_behind_what_nobody_asks_for_ends_at_the_limit) {
  Peers limited = peers();
  limited.timeout = 2s;
  run_peers(limited, [](Context& context) {
    ConnectedPair pair(context);
    Handle other(pair.queue, context, "other");
    const View few("few", kFew), view("view", kFew), many("many", kMany);
    Channel channel = pair.channel(view, !pair.first);
    channel.start();
    channel.wait();
    if (pair.first) {
      const auto sent = KokkosComm::send(other, many, 1);
      const auto received = KokkosComm::recv(pair.handle, few, 1);
      channel.start();
      const auto expect_limit = [](const std::string& text, const char* why) {
        EXPECT_NE(text.find(why), std::string::npos) << text;
      };
      expect_limit(failure_of([&] { KokkosComm::wait(received); }), "nothing comes from rank 1");
      expect_limit(failure_of([&] { channel.wait(); }), "rank 1 does not come");
      board().set(0, 1);
      KokkosComm::wait(received);
      channel.wait();
      KokkosComm::wait(sent);
    } else {
      board().await(0, 1);
      KokkosComm::wait(KokkosComm::recv(other, many, 0));
      KokkosComm::wait(KokkosComm::send(pair.handle, few, 0));
      channel.start();
      channel.wait();
    }
    context.synchronize(pair.queue.stream());
  });
}

}  // namespace
