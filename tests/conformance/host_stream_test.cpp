// SPDX-License-Identifier: Apache-2.0
// HostStream: a FIFO that one thread runs in order.
#include <array>
#include <future>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "device/host_stream.hpp"
#include "runtime/channel.hpp"
#include "runtime/handles.hpp"
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

void expect_that_a_full_queue_blocks(int capacity, int run_before) {
  HostStream stream({.capacity = static_cast<std::size_t>(capacity)});
  std::atomic<bool> go{false};
  std::atomic<int> enqueued{0};
  for (int i = 0; i < run_before; ++i) stream.run([] {});
  stream.synchronize();
  stream.run([&] {
    while (!go.load()) std::this_thread::yield();
  });
  std::thread producer([&] {
    for (int i = 0; i < 2 * capacity; ++i) {
      stream.run([] {});
      enqueued.fetch_add(1);
    }
  });
  while (enqueued.load() < capacity - 1) std::this_thread::yield();
  expect_for(50ms, [&] { return enqueued.load() <= capacity; });
  go.store(true);
  producer.join();
  stream.synchronize();
  EXPECT_EQ(enqueued.load(), 2 * capacity);
}

TEST(HostStreams, a_full_queue_blocks_who_enqueues) {
  run_peers(alone(), [](Context&) {
    expect_that_a_full_queue_blocks(8, 0);
    expect_that_a_full_queue_blocks(128, 100);  // which has gone on with its first cells
  });
}

HostStream::Impl& impl_of(HostStream& stream) { return *static_cast<HostStream::Impl*>(Stream::host(stream).handle()); }

/// Until the stream's thread leaves its work to hosts that synchronize. With ThreadSanitizer it never does.
void make_doze(HostStream& stream) {
  HostStream::Impl& impl = impl_of(stream);
  const auto dozes = [&] { return impl.run_now([] { return true; }, [] {}); };
  while (!dozes() && !base::races::kOn) {
    impl.enqueue([] {});
    stream.synchronize();
  }
}

/// A rank's channel to itself, of one slot.
struct Loop {
  explicit Loop(Context& context, Tag tag = kTag, std::size_t bytes = 8)
      : memory(context.allocate(2 * bytes)), receiver(context.receiver(0, tag, memory.all().slice(0, bytes))),
        sender(context.sender(0, tag, memory.all().slice(bytes, bytes))) {
    sender.wait_connected();
    receiver.wait_connected();
  }
  Memory memory;
  Receiver receiver;
  Sender sender;
};

TEST(HostStreams, run_a_put_in_the_call_only_behind_all_that_was_enqueued) {
  run_peers(alone(), [](Context& context) {
    Loop loop(context);
    HostStream other;
    HostStream stream;
    for (int round = 0; round < 20; ++round) {
      std::atomic<bool> goes_on{false};
      other.run([&] {
        while (!goes_on.load()) std::this_thread::yield();
      });
      const HostEvent passed = other.record();
      make_doze(stream);
      stream.wait(passed);
      loop.sender.put(Stream::host(stream));
      EXPECT_FALSE(loop.receiver.test());
      goes_on.store(true);
      stream.synchronize();
      EXPECT_TRUE(loop.receiver.test());
      make_doze(stream);
      loop.receiver.release(Stream::host(stream));
      stream.synchronize();
    }
  });
}

// ---- credits that leave with the next put

/// Holds a credit back, and looks at a loop's channel when it is given.
struct HeldBack {
  static constexpr std::size_t kBytes = 4096;

  explicit HeldBack(Context& context) : loop(context, kTag, kBytes) {}

  /// An item that holds back a credit of `peer`, and then a put.
  void enqueue(Rank peer) {
    constexpr auto give = [](HostStream::Impl*, void* self, std::uint64_t) {
      auto& held = *static_cast<HeldBack*>(self);
      held.copied = held.loop.memory.data()[0] != std::byte{0};
      held.signalled = held.loop.receiver.test().has_value();
      held.given.fetch_add(1);
    };
    host.run([this] { wait_to_go_on(); });
    inner.enqueue([this, peer, give] {
      if (inner.may_hold_back()) inner.hold_back({give, this, 1, rank, peer});
    });
    loop.memory.data()[kBytes] = std::byte{1};
    loop.sender.put(Stream::host(host));
    goes_on.store(true);
  }
  void wait_to_go_on() const {
    while (!goes_on.load()) std::this_thread::yield();
  }

  Loop loop;
  HostStream host;
  HostStream::Impl& inner = impl_of(host);
  const void* rank = &detail::ChannelAccess::end(loop.sender)->services();
  std::atomic<bool> goes_on{false};
  std::atomic<int> given{0};
  bool copied = false;
  bool signalled = false;
};

TEST(HostStreams, give_a_credit_between_the_bytes_and_the_signal_of_the_next_put) {
  run_peers(alone(), [](Context& context) {
    HeldBack held(context);
    held.enqueue(0);
    held.host.synchronize();
    EXPECT_EQ(held.given, 1);
    EXPECT_TRUE(held.copied);
    EXPECT_FALSE(held.signalled);
  });
}

TEST(HostStreams, hold_no_credit_back_for_a_put_to_another_peer) {
  run_peers(alone(), [](Context& context) {
    HeldBack held(context);
    held.enqueue(1);
    held.host.synchronize();
    EXPECT_EQ(held.given, 1);
    EXPECT_FALSE(held.copied);
  });
}

/// The peer may need it before it credits the put.
TEST(HostStreams, hold_no_credit_back_while_a_put_waits) {
  run_peers(alone(), [](Context& context) {
    HeldBack held(context);
    held.loop.sender.put(Stream::host(held.host));
    held.host.synchronize();
    held.enqueue(0);
    while (held.given == 0) std::this_thread::yield();
    EXPECT_TRUE(held.signalled);  // by the put before
    EXPECT_FALSE(held.copied);
    held.loop.receiver.release({});
    held.host.synchronize();
    EXPECT_EQ(held.given, 1);
  });
}

/// Whose credit the stream holds back; -1: none.
Rank held_back_from(const HostStream::Impl& stream) {
  return stream.held_back().give == nullptr ? -1 : stream.held_back().peer;
}

TEST(HostStreams, hold_the_credit_of_a_long_slot_back_for_one_put) {
  run_peers(alone(), [](Context& context) {
    for (const std::size_t bytes : {HeldBack::kBytes / 2, HeldBack::kBytes}) {
      Loop loop(context, static_cast<Tag>(bytes), bytes);
      HostStream host;
      HostStream::Impl& inner = impl_of(host);
      std::atomic<bool> goes_on{false};
      Rank by_put = 0, behind = 0;
      loop.sender.put({});
      host.run([&] {
        while (!goes_on.load()) std::this_thread::yield();
      });
      (void)loop.receiver.wait(Stream::host(host));
      loop.receiver.release(Stream::host(host));
      inner.enqueue([&] { by_put = held_back_from(inner); }, true);
      inner.enqueue([&] { behind = held_back_from(inner); }, true);
      goes_on.store(true);
      host.synchronize();
      EXPECT_EQ(by_put, bytes < HeldBack::kBytes ? -1 : 0) << bytes;
      EXPECT_EQ(behind, -1) << bytes;
      EXPECT_TRUE(loop.sender.credited()) << bytes;
    }
  });
}

TEST(HostStreams, hold_no_credit_back_behind_another) {
  HostStream host;
  HostStream::Impl& inner = impl_of(host);
  std::atomic<bool> goes_on{false};
  std::vector<bool> may;
  const auto enqueue_two = [&](int others) {
    inner.enqueue([&] { may.push_back(inner.may_hold_back()); });
    for (int i = 0; i < others; ++i) inner.enqueue([] {});
    inner.enqueue([&] { may.push_back(inner.may_hold_back()); });
    inner.enqueue([] {}, true);
  };
  host.run([&] {
    while (!goes_on.load()) std::this_thread::yield();
  });
  enqueue_two(1);  // the wait of the second message
  enqueue_two(4);
  goes_on.store(true);
  host.synchronize();
  EXPECT_EQ(may, (std::vector<bool>{false, false, false, true}));
}

/// As the release of a plan does.
TEST(HostStreams, hold_one_of_several_credits_back_and_give_the_others) {
  HostStream host;
  HostStream::Impl& inner = impl_of(host);
  std::array<std::atomic<int>, 2> given{};
  constexpr auto give = [](HostStream::Impl*, void* times, std::uint64_t) {
    static_cast<std::atomic<int>*>(times)->fetch_add(1);
  };
  inner.enqueue([&] {
    for (auto& times : given) inner.hold_back({give, &times, 1, nullptr, 0});
    EXPECT_EQ(given[0], 1);
    EXPECT_EQ(given[1], 0);
  });
  host.synchronize();
  EXPECT_EQ(given[0], 1);
  EXPECT_EQ(given[1], 1);
}

/// The host that runs the stream may leave the put behind to the stream's thread.
TEST(HostStreams, are_handed_back_without_a_credit) {
  if (base::races::kOn) return;  // no host runs anything
  run_peers(alone(), [](Context& context) {
    Loop loop(context, kTag, HeldBack::kBytes);
    HostStream host;
    HostStream::Impl& inner = impl_of(host);
    loop.sender.put({});
    (void)loop.receiver.wait({});
    std::atomic<int> given{0};
    Rank held = 0;
    constexpr auto give = [](HostStream::Impl*, void* times, std::uint64_t) {
      static_cast<std::atomic<int>*>(times)->fetch_add(1);
    };
    const auto holds = [&] {
      inner.enqueue([&] { held = held_back_from(inner); }, true);
      inner.hold_back({give, &given, 1, nullptr, 0});
    };
    while (!inner.run_now([] { return true; }, holds)) {
      inner.enqueue([] {});
      host.synchronize();
    }
    EXPECT_EQ(given, 1);
    host.synchronize();
    EXPECT_EQ(held, -1);
  });
}

TEST(HostStreams, run_a_put_in_the_call_if_hosts_run_all) {
  if (base::races::kOn) return;  // the call would be ordered with what the stream does
  run_peers(alone(), [](Context& context) {
    Loop loop(context);
    HostStream stream;
    int at_once = 0;  // not always: the stream's thread may look at the queue at that moment
    for (int round = 0; round < 20; ++round) {
      make_doze(stream);
      loop.sender.put(Stream::host(stream));
      const bool is_here = loop.receiver.test().has_value();
      at_once += is_here ? 1 : 0;
      EXPECT_TRUE(is_here || loop.receiver.wait_for(kForever));
      loop.receiver.release(Stream::host(stream));
      stream.synchronize();
    }
    EXPECT_GT(at_once, 0);
  });
}

TEST(HostStreams, never_wait_in_a_put) {
  run_peers(alone(), [](Context& context) {
    Loop loop(context);
    HostStream stream;
    make_doze(stream);
    loop.sender.put(Stream::host(stream));
    make_doze(stream);
    loop.sender.put(Stream::host(stream));  // without credit
    for (int put = 0; put < 2; ++put) {
      EXPECT_TRUE(loop.receiver.wait_for(kForever));
      loop.receiver.release({});
    }
    stream.synchronize();
  });
}

TEST(HostStreams, know_whose_callable_puts_on_another_stream) {
  run_peers(alone(), [](Context& context) {
    Loop loop(context);
    HostStream stream;
    HostStream other;
    std::atomic<bool> refused{false};
    stream.run([&] {
      make_doze(other);
      loop.sender.put(Stream::host(other));
      try {
        stream.synchronize();
      } catch (const Error& error) {
        refused.store(error.code() == Code::misuse);
      }
    });
    stream.synchronize();
    EXPECT_TRUE(refused.load());
    other.synchronize();
    EXPECT_TRUE(loop.receiver.test());
    loop.receiver.release({});
  });
}

/// Two threads enqueue and synchronize at the same time, and a third one relies on the stream's thread.
TEST(HostStreams, are_run_by_several_threads_in_turn) {
  constexpr int kSteps = kSanitized ? 200 : 1000;
  run_peers(alone(), [](Context& context) {
    HostStream stream;
    std::array<Loop, 2> loops{Loop(context, kTag), Loop(context, kTag + 1)};
    std::vector<std::thread> threads;
    for (Loop& loop : loops) {
      threads.emplace_back([&] {
        const Stream lane = Stream::host(stream);
        for (std::uint64_t step = 1; step <= kSteps; ++step) {
          const Slice source = loop.sender.acquire(lane);
          source.as<std::uint64_t>().front() = step;
          loop.sender.put(lane);
          const Slice arrived = loop.receiver.wait(lane);
          stream.synchronize();
          ASSERT_EQ(arrived.as<std::uint64_t>().front(), step);
          loop.receiver.release(lane);
          stream.synchronize();
        }
      });
    }
    threads.emplace_back([&] {
      for (int i = 0; i < kSteps / 10; ++i) {
        std::atomic<bool> ran{false};
        stream.run([&] { ran.store(true); });
        while (!ran.load()) std::this_thread::yield();
      }
    });
    for (std::thread& thread : threads) thread.join();
  });
}

/// All cells of a ring would fit in no cache.
TEST(HostStreams, with_few_items_at_a_time_use_few_cells) {
  run_peers(alone(), [](Context&) {
    constexpr int kCells = kSanitized ? 1 << 12 : 1 << 18;  // each step may change threads
    HostStream stream({.capacity = kCells});
    int ran = 0;
    const long before = resident_kib();
    for (int i = 0; i < kCells; i += 4) {
      for (int item = 0; item < 4; ++item) impl_of(stream).enqueue([&ran] { ++ran; });
      stream.synchronize();
    }
    EXPECT_EQ(ran, kCells);
    if (!kSanitized) {
      EXPECT_LE(resident_kib() - before, 4096);  // of the 24 MiB of all cells
    }
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

/// Each thread waits after every `at_once` items, so that the queue is empty now and then.
void expect_items_of_threads_in_order(std::size_t capacity, int at_once) {
  HostStream stream({.capacity = capacity});
  constexpr int kProducers = 4;
  constexpr int kEach = 2000;
  std::array<int, kProducers> last{};
  bool in_order = true;
  std::vector<std::thread> threads;
  for (int t = 0; t < kProducers; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 1; i <= kEach; ++i) {
        stream.run([&, t, i] {
          int& mine = last.at(static_cast<std::size_t>(t));
          in_order = in_order && mine == i - 1;
          mine = i;
        });
        if (i % at_once == 0) stream.synchronize();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stream.synchronize();
  EXPECT_TRUE(in_order);
  for (const int count : last) EXPECT_EQ(count, kEach);
}

TEST(HostStreams, any_thread_may_enqueue) {
  run_peers(alone(), [](Context&) {
    expect_items_of_threads_in_order(16, 2000);
    expect_items_of_threads_in_order(256, 30);
  });
}

TEST(HostStreams, what_a_callable_throws_stops_it_until_synchronize_throws_that) {
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
    EXPECT_FALSE(ran);
    EXPECT_EQ(what_of([&] { stream.synchronize(); }), "");  // since the last call there was none
    stream.run([] { throw std::runtime_error("third"); });
    EXPECT_EQ(what_of([&] { context.synchronize(Stream::host(stream)); }), "third");
  });
}

TEST(HostStreams, wait_for_events_of_each_other) {
  run_peers(alone(), [](Context&) {
    HostStream first({.capacity = 8});
    HostStream second({.capacity = 8});
    int step = 0;
    bool in_order = true;
    for (int i = 0; i < 300; ++i) {
      first.run([&, i] { in_order = in_order && step++ == 2 * i; });
      second.wait(first.record());
      second.run([&, i] { in_order = in_order && step++ == 2 * i + 1; });
      first.wait(second.record());
    }
    second.wait(HostEvent());  // reached
    first.synchronize();
    EXPECT_TRUE(in_order);
    EXPECT_EQ(step, 600);
  });
}

TEST(HostStreams, stop_where_they_wait_for_one_that_has_stopped) {
  run_peers(alone(), [](Context&) {
    HostStream first({.name = "first"});
    HostStream second;
    bool ran = false;
    first.run([] { throw std::runtime_error("no number"); });
    second.wait(first.record());
    second.run([&] { ran = true; });
    const auto error = expect_code(Code::aborted, [&] { second.synchronize(); });
    if (error) {
      EXPECT_NE(std::string(error->what()).find("stream 'first': no number"), std::string::npos);
    }
    EXPECT_THROW(first.synchronize(), std::runtime_error);
    EXPECT_FALSE(ran);
    second.run([&] { ran = true; });
    EXPECT_NO_THROW(second.synchronize());
    EXPECT_TRUE(ran);
  });
}

TEST(HostStreams, stop_where_they_wait_too_long_for_an_event) {
  run_peers(alone(), [](Context&) {
    HostStream first;
    HostStream second({.timeout = 20ms, .name = "second"});
    std::atomic<bool> go{false};
    bool ran = false;
    first.run([&] {
      while (!go.load()) std::this_thread::sleep_for(1ms);
    });
    second.wait(first.record());
    second.run([&] { ran = true; });
    expect_code(Code::timeout, [&] { second.synchronize(); });
    EXPECT_FALSE(ran);
    go.store(true);
    first.synchronize();
  });
}

TEST(HostStreams, give_up_synchronizing_after_the_limit) {
  run_peers(alone(), [](Context& context) {
    HostStream stream({.name = "slow"});
    std::atomic<bool> go{false};
    int ran = 0;
    stream.run([&] {
      while (!go.load()) std::this_thread::sleep_for(1ms);
    });
    stream.run([&] { ++ran; });
    for (const Timeout limit : {Timeout(0), Timeout(20ms)}) {
      const auto error = expect_code(Code::timeout, [&] { stream.synchronize(limit); });
      if (error) {
        EXPECT_NE(std::string(error->what()).find("'slow'"), std::string::npos);
      }
      expect_code(Code::timeout, [&] { context.synchronize(Stream::host(stream), limit); });
    }
    go.store(true);
    stream.synchronize(10s);
    EXPECT_EQ(ran, 1);
    stream.run([] { throw std::runtime_error("thrown"); });
    EXPECT_THROW(stream.synchronize(10s), std::runtime_error);
  });
}

TEST(HostStreams, may_be_asked_often_whether_they_have_passed) {
  run_peers(alone(), [](Context&) {
    HostStream stream({.capacity = 8});
    stream.synchronize(0s);  // nothing is enqueued
    std::atomic<bool> go{false};
    stream.run([&] {
      while (!go.load()) std::this_thread::sleep_for(1ms);
    });
    for (int i = 0; i < 100; ++i) expect_code(Code::timeout, [&] { stream.synchronize(1ms); });
    for (int i = 0; i < 4; ++i) stream.run([] {});  // for which there is room
    go.store(true);
    stream.synchronize(10s);
    stream.run([&] {
      while (go.load()) std::this_thread::sleep_for(1ms);
    });
    for (int i = 0; i < 7; ++i) stream.run([] {});  // the queue is full
    expect_code(Code::timeout, [&] { stream.synchronize(20ms); });
    go.store(false);
    stream.synchronize();
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

// ---- after a failure

constexpr std::size_t kFails = 1;  // on the board
const char* const kWhy = "as this test wants it";

/// Rank 2 fails; ranks 0 and 1 have a healthy channel.
Peers with_one_that_fails(const Case& one) {
  Case changed = one;
  changed.ranks = 3;
  return changed.peers();
}

/// Rank 2: its channel to rank 0 fails once rank 0 has enqueued all.
void fail_when_told(Context& context, const Case& one) {
  const Buffer buffer(context, one);
  Sender sender = context.sender(0, kTag, buffer.all());
  sender.wait_connected();
  board().await(kFails, 1);
  context.abort(kWhy);
}

/// Work of rank 0 behind a wait, and a record of its end.
struct Behind {
  HostStream host;
  std::future<int> promised;
  std::vector<int> ran;
  std::vector<int> destroyed;

  explicit Behind(bool stops) : host({.stop_after_failure = stops}) {}
  Stream stream() { return Stream::host(host); }

  /// Enqueues a callable that records when it runs and when it is destroyed.
  void run(int number) {
    const auto goes = [this](const int* one) {
      destroyed.push_back(*one);
      std::default_delete<const int>()(one);
    };
    host.run([this, one = std::unique_ptr<const int, decltype(goes)>(new int(number), goes)] { ran.push_back(*one); });
  }
  void promise() {
    std::promise<int> promise;
    promised = promise.get_future();
    host.run([promise = std::move(promise)]() mutable { promise.set_value(7); });
  }
};

/// Asserts that the error has the text of rank 2's failure.
void expect_that_of_rank_2(const std::optional<Error>& error) {
  if (!error) return;
  EXPECT_NE(std::string(error->what()).find(kWhy), std::string::npos) << error->what();
}

TEST_P(HostStreamChannels, run_what_stands_behind_a_failed_wait) {
  run_peers(with_one_that_fails(GetParam()), [](Context& context) {
    const Case& one = GetParam();
    if (context.rank() == 2) return fail_when_told(context, one);
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      Receiver healthy = context.receiver(0, kTag, buffer.all());
      expect_and_poison(healthy.wait({}), {0, kTag, 1});
      return healthy.release({});
    }
    const Buffer source(context, one);
    Behind behind(false);
    Receiver failing = context.receiver(2, kTag, buffer.all());
    Sender healthy = context.sender(1, kTag, source.all());
    failing.wait(behind.stream());
    behind.run(1);
    behind.promise();
    behind.host.run([slot = healthy.acquire(behind.stream())] { fill(bytes_of(slot), {0, kTag, 1}); });
    healthy.put(behind.stream());
    bool failed = false;
    behind.host.run([&] { failed = behind.host.failed(); });  // as one that runs long would look
    EXPECT_FALSE(behind.host.failed());
    board().set(kFails, 1);
    EXPECT_EQ(behind.promised.get(), 7);
    expect_that_of_rank_2(expect_code(Code::aborted, [&] { context.synchronize(behind.stream()); }));
    EXPECT_TRUE(failed);
    EXPECT_FALSE(behind.host.failed());
    EXPECT_EQ(behind.ran, std::vector<int>({1}));
    healthy.close();
    context.check();
  });
}

TEST_P(HostStreamChannels, run_nothing_behind_a_failed_wait_if_they_stop) {
  run_peers(with_one_that_fails(GetParam()), [](Context& context) {
    const Case& one = GetParam();
    if (context.rank() == 2) return fail_when_told(context, one);
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      Receiver healthy = context.receiver(0, kTag, buffer.all());
      expect_that_of_rank_2(expect_code(Code::aborted, [&] { healthy.wait({}); }));
      const Buffer second(context, one);
      Receiver next = context.receiver(0, kTag + 1, second.all());
      expect_and_poison(next.wait({}), {0, kTag + 1, 1});
      return next.release({});
    }
    const Buffer source(context, one);
    Behind behind(true);
    Receiver failing = context.receiver(2, kTag, buffer.all());
    Sender healthy = context.sender(1, kTag, source.all());
    healthy.wait_connected();
    behind.run(0);
    failing.wait(behind.stream());
    for (int i = 1; i <= 3; ++i) behind.run(i);
    behind.promise();
    failing.release(behind.stream());
    healthy.put(behind.stream());
    board().set(kFails, 1);
    EXPECT_THROW(behind.promised.get(), std::future_error);
    expect_within(10s, [&] { return behind.host.failed(); });
    expect_that_of_rank_2(expect_code(Code::aborted, [&] { context.check(); }));
    behind.run(4);  // `check` does not restart it
    failing.close(10s);
    healthy.close(10s);  // what is not fired counts as over
    expect_that_of_rank_2(expect_code(Code::aborted, [&] { behind.host.synchronize(); }));
    EXPECT_FALSE(behind.host.failed());
    EXPECT_EQ(behind.ran, std::vector<int>({0}));
    EXPECT_EQ(behind.destroyed, std::vector<int>({0, 1, 2, 3, 4}));
    const auto of_healthy = expect_code(Code::aborted, [&] { context.check(); });
    EXPECT_EQ(of_healthy ? of_healthy->peer() : -1, 1);
    expect_that_of_rank_2(of_healthy);
    // And on.
    Sender next = context.sender(1, kTag + 1, source.all());
    behind.host.run([slot = next.acquire(behind.stream())] { fill(bytes_of(slot), {0, kTag + 1, 1}); });
    next.put(behind.stream());
    behind.run(5);
    context.synchronize(behind.stream());
    EXPECT_EQ(behind.ran, std::vector<int>({0, 5}));
  });
}

/// `synchronize` throws the failure even if `check` has thrown it before; only then the stream goes on.
TEST_P(HostStreamChannels, that_have_stopped_say_why_to_who_synchronizes) {
  run_peers(with_one_that_fails(GetParam()), [](Context& context) {
    const Case& one = GetParam();
    if (context.rank() == 2) return fail_when_told(context, one);
    if (context.rank() == 1) return;
    const Buffer buffer(context, one);
    Behind behind(true);
    Receiver failing = context.receiver(2, kTag, buffer.all());
    failing.wait(behind.stream());
    behind.run(1);
    board().set(kFails, 1);
    expect_within(10s, [&] { return behind.host.failed(); });
    expect_code(Code::aborted, [&] { context.check(); });
    context.check();  // that was all
    expect_that_of_rank_2(expect_code(Code::aborted, [&] { context.synchronize(behind.stream()); }));
    behind.run(2);
    context.synchronize(behind.stream());
    EXPECT_EQ(behind.ran, std::vector<int>({2}));
  });
}

TEST_P(HostStreamChannels, that_stop_fail_plans_as_a_whole) {
  run_peers(with_one_that_fails(GetParam()), [](Context& context) {
    const Case& one = GetParam();
    if (context.rank() == 2) return fail_when_told(context, one);
    const Rank other = 1 - context.rank();
    const Buffer buffer(context, one, 3 * one.bytes);
    const auto part = [&](std::size_t i) { return buffer.all().slice(i * one.bytes, one.bytes); };
    Sender out = context.sender(other, kTag, part(0));
    Receiver in = context.receiver(other, kTag, part(1));
    if (context.rank() == 1) {
      expect_that_of_rank_2(expect_code(Code::aborted, [&] { in.wait({}); }));
      expect_within(10s, [&] {
        try {
          out.drain(0ms);
          return false;
        } catch (const Error& error) {
          return error.code() == Code::aborted;
        }
      });
      return;
    }
    Behind behind(true);
    Receiver failing = context.receiver(2, kTag, part(2));
    Plan plan = context.plan();
    plan.add(out).add(in).commit(behind.stream());
    failing.wait(behind.stream());
    plan.acquire(behind.stream());
    plan.start(behind.stream());  // of `out`, but the plan fails
    behind.run(1);
    board().set(kFails, 1);
    expect_that_of_rank_2(expect_code(Code::aborted, [&] { context.synchronize(behind.stream()); }));
    EXPECT_EQ(behind.ran, std::vector<int>());
    expect_code(Code::aborted, [&] { plan.start(behind.stream()); });
    expect_code(Code::aborted, [&] { plan.wait(behind.stream()); });
    out.close(10s);
    in.close(10s);
  });
}

/// A put of a stopped stream fails its channel, and so stops the stream that waits for it.
TEST_P(HostStreamChannels, that_stop_stop_those_that_wait_for_them) {
  run_peers(with_one_that_fails(GetParam()), [](Context& context) {
    const Case& one = GetParam();
    if (context.rank() == 2) return fail_when_told(context, one);
    if (context.rank() == 1) return;
    const Buffer buffer(context, one, 3 * one.bytes);
    const auto part = [&](std::size_t i) { return buffer.all().slice(i * one.bytes, one.bytes); };
    Behind first(true);
    Behind second(true);
    Receiver failing = context.receiver(2, kTag, part(0));
    Sender to_second = context.sender(0, kTag, part(1));
    Receiver from_first = context.receiver(0, kTag, part(2));
    failing.wait(first.stream());
    to_second.put(first.stream());
    from_first.wait(second.stream());
    second.run(1);
    second.promise();
    board().set(kFails, 1);
    EXPECT_THROW(second.promised.get(), std::future_error);
    expect_that_of_rank_2(expect_code(Code::aborted, [&] { second.host.synchronize(); }));
    expect_that_of_rank_2(expect_code(Code::aborted, [&] { first.host.synchronize(); }));
    EXPECT_EQ(second.ran, std::vector<int>());
  });
}

std::vector<Case> host_only(std::vector<Case> cases) {
  std::erase_if(cases, [](const Case& one) { return !one.host; });
  return cases;
}
INSTANTIATE_IN_ITS_RANKS(Quick, HostStreamChannels, testing::ValuesIn(host_only(stream_cases())), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, HostStreamChannels,
                         full_cases([] { return host_only(on(all_grounds(), memory_cases())); }), CaseName());

}  // namespace
