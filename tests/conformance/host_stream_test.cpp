// SPDX-License-Identifier: Apache-2.0
// HostStream: a FIFO that one thread runs in order.
#include <set>
#include <thread>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

/// These need one rank, and no backend in particular.
Peers alone() { return {.ranks = 1}; }

TEST(HostStreams, run_what_was_enqueued_in_order) {
  run_peers(alone(), [](Context&) {
    HostStream stream({.capacity = 64});
    std::vector<int> seen;
    for (int i = 0; i < 10'000; ++i) stream.run([&seen, i] { seen.push_back(i); });
    stream.synchronize();
    ASSERT_EQ(seen.size(), 10'000U);
    for (int i = 0; i < 10'000; ++i) ASSERT_EQ(seen[static_cast<std::size_t>(i)], i);
  });
}

TEST(HostStreams, run_callables_in_one_thread_of_their_own) {
  run_peers(alone(), [](Context& context) {
    HostStream stream;
    std::set<std::thread::id> threads;
    for (int round = 0; round < 200; ++round) {
      for (int i = 0; i < 5; ++i) stream.run([&] { threads.insert(std::this_thread::get_id()); });
      round % 2 == 0 ? stream.synchronize() : context.synchronize(Stream::host(stream));
    }
    EXPECT_EQ(threads.size(), 1U);
    EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
  });
}

TEST(HostStreams, a_full_queue_blocks_who_enqueues) {
  run_peers(alone(), [](Context&) {
    HostStream stream({.capacity = 8});
    std::atomic<bool> go{false};
    std::atomic<int> enqueued{0};
    stream.run([&] {
      while (!go.load()) std::this_thread::yield();
    });
    std::thread producer([&] {
      for (int i = 0; i < 100; ++i) {
        stream.run([] {});
        enqueued.fetch_add(1);
      }
    });
    expect_for(50ms, [&] { return enqueued.load() <= 8; });
    go.store(true);
    producer.join();
    stream.synchronize();
    EXPECT_EQ(enqueued.load(), 100);
  });
}

TEST(HostStreams, enqueueing_from_inside_never_blocks) {
  run_peers(alone(), [](Context&) {
    HostStream stream({.capacity = 4});
    std::vector<int> seen;
    std::atomic<bool> done{false};
    stream.run([&] {
      for (int i = 0; i < 1000; ++i) stream.run([&seen, i] { seen.push_back(i); });
      stream.run([&] { done.store(true); });
      seen.push_back(-1);  // they run after this, in order
    });
    while (!done.load()) stream.synchronize();
    ASSERT_EQ(seen.front(), -1);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(seen[static_cast<std::size_t>(i) + 1], i);
  });
}

TEST(HostStreams, any_thread_may_enqueue) {
  run_peers(alone(), [](Context&) {
    HostStream stream({.capacity = 16});
    constexpr int kThreads = 4;
    constexpr int kEach = 2000;
    std::array<int, kThreads> last{};
    bool in_order = true;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 1; i <= kEach; ++i) {
          stream.run([&, t, i] {
            int& mine = last.at(static_cast<std::size_t>(t));
            in_order = in_order && mine == i - 1;
            mine = i;
          });
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    stream.synchronize();
    EXPECT_TRUE(in_order);
    for (const int count : last) EXPECT_EQ(count, kEach);
  });
}

TEST(HostStreams, what_a_callable_throws_surfaces_at_synchronize) {
  run_peers(alone(), [](Context& context) {
    HostStream stream;
    bool ran = false;
    stream.run([] { throw std::runtime_error("first"); });
    stream.run([] { throw std::runtime_error("second"); });
    stream.run([&] { ran = true; });
    const auto what_of = [](auto call) -> std::string {
      try {
        call();
        return {};
      } catch (const std::runtime_error& error) {
        return error.what();
      }
    };
    EXPECT_EQ(what_of([&] { stream.synchronize(); }), "first");
    EXPECT_TRUE(ran);
    EXPECT_EQ(what_of([&] { stream.synchronize(); }), "");  // since the last call there was none
    stream.run([] { throw std::runtime_error("third"); });
    EXPECT_EQ(what_of([&] { context.synchronize(Stream::host(stream)); }), "third");
  });
}

TEST(HostStreams, take_callables_that_can_only_be_moved_and_large_ones) {
  run_peers(alone(), [](Context&) {
    HostStream stream;
    int sum = 0;
    auto owned = std::make_unique<int>(5);
    stream.run([&sum, owned = std::move(owned)] { sum += *owned; });
    std::array<int, 64> large{};
    large.fill(2);
    stream.run([&sum, large] {
      for (const int value : large) sum += value;
    });
    auto counted = std::make_shared<int>(0);
    stream.run([counted] { ++*counted; });
    stream.synchronize();
    EXPECT_EQ(sum, 5 + 128);
    EXPECT_EQ(*counted, 1);
    EXPECT_EQ(counted.use_count(), 1);  // and destroy them after they have run
  });
}

TEST(HostStreams, destruction_runs_what_can_run) {
  run_peers(alone(), [](Context&) {
    int ran = 0;
    {
      HostStream stream;
      for (int i = 0; i < 1000; ++i) stream.run([&] { ++ran; });
    }
    EXPECT_EQ(ran, 1000);
  });
}

TEST(HostStreams, a_moved_stream_is_the_same_stream) {
  run_peers(alone(), [](Context& context) {
    HostStream first;
    const Stream handle = Stream::host(first);
    int ran = 0;
    first.run([&] { ++ran; });
    HostStream second = std::move(first);
    EXPECT_EQ(Stream::host(second), handle);
    second.run([&] { ++ran; });
    context.synchronize(handle);
    EXPECT_EQ(ran, 2);
  });
}

TEST(HostStreams, refuse_what_cannot_be) {
  run_peers(alone(), [](Context&) {
    expect_code(Code::bad_argument, [] { const HostStream none({.capacity = 0}); });
    expect_code(Code::bad_argument, [] { const HostStream nowhere({.cpu = 1'000'000}); });
  });
}

TEST(HostStreams, synchronize_from_inside_is_misuse) {
  run_peers(alone(), [](Context&) {
    HostStream stream;
    std::optional<Code> code;
    stream.run([&] {
      try {
        stream.synchronize();
      } catch (const Error& error) {
        code = error.code();
      }
    });
    stream.synchronize();
    EXPECT_EQ(code, Code::misuse);
  });
}

// ---- with channels

class HostStreamChannels : public testing::TestWithParam<Case> {};

TEST_P(HostStreamChannels, a_host_may_enqueue_1000_steps_ahead_and_sleep) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Rank other = 1 - context.rank();
    HostStream host;
    const Stream stream = Stream::host(host);
    const Buffer source(context, one);
    const Buffer target(context, one);
    Sender sender = context.sender(other, kTag, source.all());
    Receiver receiver = context.receiver(other, kTag, target.all());
    host.run([] { board().await(kGo, 1); });  // all is enqueued before anything runs
    for (std::uint64_t epoch = 1; epoch <= 1000; ++epoch) {
      host.run([slot = sender.acquire(stream), rank = context.rank(), epoch] {
        fill(bytes_of(slot), {rank, kTag, epoch});
      });
      sender.put(stream);
      host.run([slot = receiver.wait(stream), other, epoch] { expect_and_poison(slot, {other, kTag, epoch}); });
      receiver.release(stream);
    }
    board().meet(context);
    board().set(kGo, 1);
    context.synchronize(stream);
  });
}

TEST_P(HostStreamChannels, two_streams_of_one_rank) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Rank other = 1 - context.rank();
    std::array<HostStream, 2> hosts;
    const Buffer buffer(context, one, 4 * one.bytes);
    const auto part = [&](std::size_t i) { return buffer.all().slice(i * one.bytes, one.bytes); };
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
    for (std::size_t i = 0; i < 2; ++i) {
      senders.push_back(context.sender(other, kTag + static_cast<Tag>(i), part(i)));
      receivers.push_back(context.receiver(other, kTag + static_cast<Tag>(i), part(2 + i)));
    }
    // The second stream of rank 0 waits for what its first one makes rank 1 send: a stream must not hold another.
    for (std::uint64_t epoch = 1; epoch <= 100; ++epoch) {
      for (std::size_t i = 0; i < 2; ++i) {
        const Stream stream = Stream::host(hosts.at(i));
        const Tag tag = kTag + static_cast<Tag>(i);
        if (context.rank() == 0) {
          hosts.at(i).run([slot = senders[i].acquire(stream), tag, epoch] { fill(bytes_of(slot), {0, tag, epoch}); });
          senders[i].put(stream);
        }
        hosts.at(i).run([slot = receivers[i].wait(stream), other, tag, epoch] {
          expect_and_poison(slot, {other, tag, epoch});
        });
        receivers[i].release(stream);
        if (context.rank() == 1) {
          hosts.at(i).run([slot = senders[i].acquire(stream), tag, epoch] { fill(bytes_of(slot), {1, tag, epoch}); });
          senders[i].put(stream);
        }
      }
    }
    for (HostStream& host : hosts) context.synchronize(Stream::host(host));
  });
}

/// One channel may go from one stream to another of its kind, where the user orders the two.
TEST_P(HostStreamChannels, a_channel_may_change_its_stream) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    std::array<HostStream, 2> hosts;
    std::optional<Sender> sender;
    std::optional<Receiver> receiver;
    if (context.rank() == 0) sender = context.sender(1, kTag, buffer.all());
    if (context.rank() == 1) receiver = context.receiver(0, kTag, buffer.all());
    for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) {
      HostStream& host = hosts.at(epoch % 2);
      const Stream stream = Stream::host(host);
      if (sender) {
        host.run([slot = sender->acquire(stream), epoch] { fill(bytes_of(slot), {0, kTag, epoch}); });
        sender->put(stream);
      } else {
        host.run([slot = receiver->wait(stream), epoch] { expect_and_poison(slot, {0, kTag, epoch}); });
        receiver->release(stream);
      }
      context.synchronize(stream);
    }
  });
}

TEST_P(HostStreamChannels, verbs_may_be_enqueued_from_inside_the_stream) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    HostStream host({.capacity = 4});
    const Stream stream = Stream::host(host);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      sender.wait_connected();
      host.run([&] {
        for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) {
          host.run([slot = sender.acquire(stream), epoch] { fill(bytes_of(slot), {0, kTag, epoch}); });
          sender.put(stream);
        }
        host.run([] { board().set(kGo, 1); });
      });
      board().await(kGo, 1);
      context.synchronize(stream);
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) {
        expect_and_poison(receiver.wait({}), {0, kTag, epoch});
        receiver.release({});
      }
    }
  });
}

std::vector<Case> host_only(std::vector<Case> cases) {
  std::erase_if(cases, [](const Case& one) { return !one.host; });
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Quick, HostStreamChannels, testing::ValuesIn(host_only(stream_cases())), CaseName());
INSTANTIATE_TEST_SUITE_P(Full, HostStreamChannels,
                         full_cases([] { return host_only(on(all_grounds(), memory_cases())); }), CaseName());

}  // namespace
