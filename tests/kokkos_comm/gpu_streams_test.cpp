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
    EXPECT_EQ(view(0), value);
    EXPECT_EQ(view(view.extent(0) - 1), value);
  });
}

/// Ranks 0 and 1, and what is between them.
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

  bool first;
  Rank peer;
  GpuStream stream;
  Queue queue;
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
    channel.recvinit(gaps_in);
    const View sent("sent", kMany), received("received", kMany);
    for (int step = 0; step < 30; ++step) {
      queue.run([=, rank = context.rank()] {
        Kokkos::deep_copy(sent, rank * 100 + step);
        Kokkos::deep_copy(gaps_out, rank * 100 + step + 50);
      });
      channel.start();
      KokkosComm::wait(kokkos_comm::exchange(handle, sent, right, received, left));
      channel.wait();
      queue.run([=] {
        EXPECT_EQ(received(kMany - 1), left * 100 + step);
        EXPECT_EQ(gaps_in(19, 2), left * 100 + step + 50);
      });
    }
    queue.fence("test");
  });
}

/// Rank 1 needs the Channel's View before it sends what rank 0 waits for.
TEST_P(OnStreamsOfAGpu, a_wait_for_a_message_comes_behind_what_channels_have_started) {
  run_peers(peers(), [](Context& context) {
    const Pair pair(context);
    Handle handle(pair.queue, context);
    pair.connect(handle);
    const View sent("sent", kFew), received("received", kFew), message("message", kFew);
    Channel channel(handle, pair.peer, pair.peer, 1);
    pair.first ? channel.sendinit(sent) : channel.recvinit(received);
    if (pair.first) {
      fill(pair.queue, sent, 7);
      channel.start();
      board().set(0, 1);
      KokkosComm::wait(KokkosComm::recv(handle, message, 1));
      expect(pair.queue, message, 8);
      channel.wait();
    } else {
      board().await(0, 1);
      channel.start();
      channel.wait();
      fill(pair.queue, message, 1);
      pair.queue.run([=] { message(0) += received(0), message(kFew - 1) += received(kFew - 1); });
      KokkosComm::wait(KokkosComm::send(handle, message, 0));
    }
    context.synchronize(pair.queue.stream());
  });
}

/// Rank 1 needs the many before it starts what rank 0 waits for.
TEST_P(OnStreamsOfAGpu, a_wait_for_a_channel_comes_behind_messages) {
  run_peers(peers(), [](Context& context) {
    const Pair pair(context);
    Handle handle(pair.queue, context);
    pair.connect(handle);
    const View view("view", kFew), many("many", kMany);
    Channel channel(handle, pair.peer, pair.peer, 1);
    pair.first ? channel.recvinit(view) : channel.sendinit(view);
    channel.start();
    channel.wait();
    context.synchronize(pair.queue.stream());
    if (pair.first) {
      channel.start();
      fill(pair.queue, many, 7);
      const auto sent = KokkosComm::send(handle, many, 1);
      board().set(0, 1);
      channel.wait();
      expect(pair.queue, view, 7);
      KokkosComm::wait(sent);
    } else {
      board().await(0, 1);
      KokkosComm::wait(KokkosComm::recv(handle, many, 0));
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

/// The peer asks for the message on the other stream only after the one on this.
TEST_P(OnStreamsOfAGpu, a_wait_is_not_held_up_by_what_another_stream_has_not_put) {
  run_peers(peers(), [](Context& context) {
    const Pair pair(context);
    GpuStream other_stream;
    const Queue other_queue(other_stream);
    Handle handle(pair.queue, context), other(other_queue, context, "other");
    pair.connect(handle);
    const View few("few", kFew), many("many", kMany);
    if (pair.first) {
      const auto sent = KokkosComm::send(other, many, 1);
      KokkosComm::wait(KokkosComm::recv(handle, few, 1));
      board().set(0, 1);
      KokkosComm::wait(sent);
    } else {
      KokkosComm::wait(KokkosComm::send(handle, few, 0));
      board().await(0, 1);
      KokkosComm::wait(KokkosComm::recv(other, many, 0));
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
  limited.connect_timeout = 1s;
  run_peers(limited, [](Context& context) {
    const Pair pair(context);
    Handle handle(pair.queue, context), other(pair.queue, context, "other");
    pair.connect(handle);
    const View few("few", kFew), view("view", kFew), many("many", kMany);
    Channel channel(handle, pair.peer, pair.peer, 1);
    pair.first ? channel.recvinit(view) : channel.sendinit(view);
    channel.start();
    channel.wait();
    if (pair.first) {
      const auto sent = KokkosComm::send(other, many, 1);
      const auto received = KokkosComm::recv(handle, few, 1);
      channel.start();
      const char* const why = "what was sent before it, on the same stream, has not been asked for";
      EXPECT_NE(failure_of([&] { KokkosComm::wait(received); }).find(why), std::string::npos);
      EXPECT_NE(failure_of([&] { channel.wait(); }).find(why), std::string::npos);
      board().set(0, 1);
      KokkosComm::wait(received);
      channel.wait();
      KokkosComm::wait(sent);
    } else {
      board().await(0, 1);
      KokkosComm::wait(KokkosComm::recv(other, many, 0));
      KokkosComm::wait(KokkosComm::send(handle, few, 0));
      channel.start();
      channel.wait();
    }
    context.synchronize(pair.queue.stream());
  });
}

}  // namespace
