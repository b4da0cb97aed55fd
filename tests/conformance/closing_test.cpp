// SPDX-License-Identifier: Apache-2.0
// Closing: a handshake that needs no agreement on when, and that says when memory may be freed.
#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kClosed = 1;
constexpr std::size_t kFreed = 2;
constexpr std::size_t kTried = 3;

class Closing : public testing::TestWithParam<Case> {};

TEST_P(Closing, epochs_put_before_the_sender_closed_are_still_read) {
  Case deep = GetParam();
  deep.depth = 3;
  run_peers(deep.peers(), [deep](Context& context) {
    Order order(deep);
    if (context.rank() == 0) {
      {
        const Buffer buffer(context, deep);
        Sender sender = context.sender(1, kTag, buffer.all(), {.depth = 3});
        for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
          order.run([slot = sender.acquire(order.stream()), epoch] { fill(bytes_of(slot), {0, kTag, epoch}); });
          sender.put(order.stream());
        }
        context.synchronize(order.stream());
        sender.close();
        poison(buffer.bytes());  // it may be freed, or used for something else
      }
      board().set(kClosed, 1);
      board().meet(context);
    } else {
      const Buffer buffer(context, deep);
      Receiver receiver = context.receiver(0, kTag, buffer.all(), {.depth = 3});
      board().await(kClosed, 1);  // the receiver need not close at the same time
      for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
        order.run([slot = receiver.wait(order.stream()), epoch] { expect_and_poison(slot, {0, kTag, epoch}); });
        receiver.release(order.stream());
      }
      context.synchronize(order.stream());
      board().meet(context);
    }
  });
}

TEST_P(Closing, a_wait_beyond_the_final_epoch_is_refused_and_host_forms_see_a_normal_end) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    ChannelEnd end(context, one);
    if (end.first) {
      fill(end.buffer.bytes(), {0, kTag, 1});
      end.sender.put(end.stream());
      context.synchronize(end.stream());
      board().await(kGo, 1);
      end.sender.close();
      board().set(kClosed, 1);
      board().meet(context);
    } else {
      end.order.run([slot = end.receiver.wait(end.stream())] { expect_and_poison(slot, {0, kTag, 1}); });
      end.receiver.release(end.stream());
      if (one.host) {
        end.receiver.wait(end.stream());  // parked before the sender closes
        board().set(kGo, 1);
        const auto error = expect_code(Code::closed, [&] { context.synchronize(end.stream()); });
        if (error) {
          EXPECT_EQ(error->peer(), 0);
          EXPECT_EQ(error->epoch(), 2U);
        }
      } else {
        board().set(kGo, 1);
        board().await(kClosed, 1);
        expect_within(10s, [&] { return end.receiver.closed(); });
        expect_code(Code::closed, [&] { end.receiver.wait({}); });
        EXPECT_FALSE(end.receiver.wait_for(10s));
        EXPECT_FALSE(end.receiver.test());
      }
      EXPECT_TRUE(end.receiver.closed());
      board().meet(context);
    }
  });
}

/// The sender has closed, but its stream has not come to the put yet: the waits up to it are good.
TEST_P(Closing, a_wait_beyond_the_final_epoch_ends_no_wait_before_it) {
  run_peers(GetParam().peers(), [](Context& context) {
    ChannelEnd end(context, on_host(GetParam()));
    const Stream stream = end.stream();
    if (end.first) {
      end.order.run([] { board().await(kClosed, 1); });
      end.order.run([slot = end.sender.acquire(stream)] { fill(bytes_of(slot), {0, kTag, 1}); });
      end.sender.put(stream);
      board().await(kGo, 1);
      expect_code(Code::timeout, [&] { end.sender.close(50ms); });
      board().set(kClosed, 1);
      end.sender.close();
    } else {
      bool good = false;
      end.order.run([slot = end.receiver.wait(stream), &good] {
        good = difference(bytes_of(slot), {0, kTag, 1}).empty();
      });
      end.receiver.release(stream);
      end.receiver.wait(stream);
      end.receiver.wait_connected();
      board().set(kGo, 1);
      expect_code(Code::closed, [&] { context.synchronize(stream); });
      EXPECT_TRUE(good);
    }
  });
}

TEST_P(Closing, wait_for_ends_when_the_sender_closes) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Buffer buffer(context, GetParam());
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      board().await(kGo, 1);
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      receiver.wait_connected();
      board().set(kGo, 1);
      EXPECT_FALSE(receiver.closed());
      EXPECT_FALSE(receiver.wait_for(60s));
      EXPECT_TRUE(receiver.closed());
    }
  });
}

/// A loop that polls needs no try block: it takes every epoch, and then it is over.
TEST_P(Closing, a_loop_of_test_takes_every_epoch_and_ends) {
  run_peers(GetParam().peers(), [](Context& context) {
    Case deep = GetParam();
    deep.depth = 3;
    ChannelEnd end(context, deep, {.depth = 3});
    if (end.first) {
      for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
        end.order.run([slot = end.sender.acquire(end.stream()), epoch] { fill(bytes_of(slot), {0, kTag, epoch}); });
        end.sender.put(end.stream());
      }
      context.synchronize(end.stream());
      end.sender.close();
      board().set(kClosed, 1);
    } else {
      board().await(kClosed, 1);  // an announced epoch that is still to be taken is no end
      EXPECT_FALSE(end.receiver.closed());
      std::uint64_t taken = 0;
      while (!end.receiver.closed()) {
        if (const auto slot = end.receiver.test()) expect_and_poison(*slot, {0, kTag, ++taken});
      }
      EXPECT_EQ(taken, 3U);
      context.check();
    }
    board().meet(context);
  });
}

TEST_P(Closing, a_put_that_the_receiver_will_never_credit_is_misuse_and_moves_nothing) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    ChannelEnd end(context, one);
    if (end.first) {
      end.order.run([slot = end.sender.acquire(end.stream())] { fill(bytes_of(slot), {0, kTag, 1}); });
      end.sender.put(end.stream());
      const auto second = [&] {
        end.order.run([slot = end.sender.acquire(end.stream())] { fill(bytes_of(slot), {0, kTag, 2}); });
        end.sender.put(end.stream());
        context.synchronize(end.stream());
      };
      const auto error = expect_code(Code::misuse, second);
      EXPECT_EQ(error ? error->peer() : -1, 1);
      expect_code(Code::misuse, [&] { end.sender.put(end.stream()); });
      board().meet(context);
    } else {
      end.receiver.wait({});
      expect_for(10ms, [] { return true; });  // usually the second put is waiting by now
      end.receiver.close();
      // A GPU's stream cannot look whether it was released by a failure: it moves the bytes before the memory goes.
      if (!one.cuda) {
        EXPECT_EQ(difference(end.buffer.bytes(), {0, kTag, 1}), "");
      }
      poison(end.buffer.bytes());  // closed: no put writes here any more
      board().meet(context);
      EXPECT_EQ(unlike_poison(end.buffer.bytes()), "");
    }
  });
}

TEST_P(Closing, close_waits_for_what_the_stream_has_not_done_yet) {
  run_peers(GetParam().peers(), [](Context& context) {
    ChannelEnd end(context, on_host(GetParam()));
    const Stream stream = end.stream();
    if (end.first) {
      end.sender.wait_connected();
      end.order.run([] { board().await(kGo, 1); });
      end.order.run([slot = end.buffer.all()] { fill(bytes_of(slot), {0, kTag, 1}); });
      end.sender.put(stream);
      expect_code(Code::timeout, [&] { end.sender.close(30ms); });
      board().await(kTried, 1);
      board().set(kGo, 1);
      end.sender.close();
      poison(end.buffer.bytes());
      board().set(kClosed, 1);
    } else {
      end.order.run([] { board().await(kClosed, 1); });
      end.order.run([slot = end.receiver.wait(stream)] { expect_and_poison(slot, {0, kTag, 1}); });
      expect_code(Code::timeout, [&] { end.receiver.close(30ms); });
      board().set(kTried, 1);
      context.synchronize(stream);
      end.receiver.close();
    }
  });
}

/// How often the engines of this process went to sleep so far.
int sleeps_of_engines() {
  int sleeps = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    const std::string text(std::istreambuf_iterator<char>(status), {});
    constexpr std::string_view kCount = "\nvoluntary_ctxt_switches:";
    const auto at = text.find(kCount);
    if (text.find("sluice-engine") != std::string::npos && at != std::string::npos)
      sleeps += std::stoi(text.substr(at + kCount.size()));
  }
  return sleeps;
}

/// Waits until what the peer has announced at closing is known here: the next epoch is refused.
template <class F>
void expect_refusal(F next) {
  expect_within(10s, [&] {
    try {
      next();
      return false;
    } catch (const Error& error) {
      return error.code() == Code::misuse;
    }
  });
}

/// The engine looks for the end of what a closing peer waits for, ever more rarely, but not too rarely.
TEST_P(Closing, a_peer_that_closes_is_answered_soon_and_waits_at_little_cost) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    const auto now = [] { return static_cast<std::uint64_t>(Clock::now().time_since_epoch() / 1ms); };
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      sender.wait_connected();
      HostStream host;
      std::promise<void> free;
      host.run([&free] { free.get_future().wait(); });
      sender.put(Stream::host(host));
      board().set(kGo, 1);
      expect_refusal([&] { sender.acquire(Stream::host(host)); });
      const int before = sleeps_of_engines();
      const std::uint64_t began = now();
      std::this_thread::sleep_for(500ms);
      if (!one.ground.polled) {
        EXPECT_LT(sleeps_of_engines() - before, static_cast<int>(now() - began) / 8 + 20);
      }
      board().set(kFreed, now());
      free.set_value();
      board().await(kClosed, 1);  // until then nothing here wakes the engine
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      receiver.wait_connected();
      board().await(kGo, 1);
      receiver.close();
      const std::uint64_t answered = now();
      board().set(kClosed, 1);
      board().await(kFreed, 1);
      EXPECT_LT(answered, board().word(kFreed).load() + 3000);  // on a busy machine; a look comes within 16 ms
    }
  });
}

/// Refused because the peer has closed its end: nothing was counted, nothing has failed, and closing has nothing to
/// wait for.
TEST_P(Closing, an_epoch_that_is_refused_is_not_counted) {
  run_peers(GetParam().peers(), [](Context& context) {
    BothEnds end(context, GetParam());
    const Stream stream = end.stream();
    end.sender.put(stream);
    end.receiver.wait(stream);
    context.synchronize(stream);
    board().meet(context);
    if (!end.first) {
      end.receiver.close();
      end.sender.close();
    } else {
      expect_refusal([&] { end.sender.acquire(stream); });
      expect_within(10s, [&] { return end.receiver.closed(); });
      for (int i = 0; i < 3; ++i) {
        expect_code(Code::misuse, [&] { end.sender.put(stream); });
        expect_code(Code::closed, [&] { end.receiver.wait(stream); });
      }
      EXPECT_EQ(end.sender.epoch(), 1U);
      EXPECT_EQ(end.receiver.epoch(), 1U);
      end.sender.close();
      end.receiver.close();
      context.synchronize(stream);
    }
    board().meet(context);
  });
}

TEST_P(Closing, the_receiver_may_close_first_with_nothing_read) {
  run_peers(GetParam().peers(), [](Context& context) {
    ChannelEnd end(context, GetParam());
    if (end.first) {
      end.sender.put(end.stream());
      context.synchronize(end.stream());
      board().set(kGo, 1);
      board().await(kClosed, 1);
      end.sender.close();
    } else {
      board().await(kGo, 1);
      end.receiver.close();
      board().set(kClosed, 1);
    }
  });
}

/// A rank that ends after all its epochs have landed and it has closed is no loss to a peer that still reads or puts.
TEST_P(Closing, a_rank_that_ends_after_it_has_closed_is_no_loss) {
  run_peers(GetParam().peers(), [](Context& context) {
    BothEnds end(context, GetParam());
    fill(end.source.bytes(), {context.rank(), kTag, 1});
    end.sender.put(end.stream());
    context.synchronize(end.stream());
    if (end.first) {
      end.receiver.wait({});
      end.receiver.release({});
      return;
    }
    Receiver witness = context.receiver(0, kTag + 1, end.target.all());
    expect_code(Code::peer_lost, [&] { witness.wait_connected(); });
    expect_code(Code::peer_lost, [&] { context.check(); });
    end.order.run([slot = end.receiver.wait(end.stream())] { expect_and_poison(slot, {0, kTag, 1}); });
    end.receiver.release(end.stream());
    end.sender.put(end.stream());  // it has the credit
    context.synchronize(end.stream());
    end.sender.drain(10s);  // the receiver has closed
    expect_code(Code::closed, [&] { end.receiver.wait(end.stream()); });
    expect_code(Code::misuse, [&] { end.sender.put(end.stream()); });
  });
}

bool mapped(void* page) { return ::msync(page, 1, MS_ASYNC) == 0; }

/// A destructor that gives up keeps the memory in use, and reports it; a later opening frees it, once it is unused.
TEST_P(Closing, a_destructor_that_runs_out_of_time_keeps_what_is_in_use_for_later) {
  Peers peers = GetParam().peers();
  peers.connect_timeout = 100ms;
  const Ended ended = end_of_peers(peers, [](Context& context) {
    Case large = GetParam();
    large.bytes = 1024 * 1024;  // has a mapping of its own
    if (context.rank() == 1) {
      const Buffer buffer(context, large);
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      receiver.wait_connected(10s);
      receiver.wait({});
      EXPECT_EQ(difference(buffer.bytes(), {0, kTag, 1}), "");
      board().set(kClosed, 1);
      return;
    }
    const Memory small = context.allocate(64);
    const auto open_another = [&] { const Sender sender = context.sender(1, kTag + 1, small.slice(0, 64)); };
    HostStream host;
    std::byte* kept = nullptr;
    {
      const Memory memory = context.allocate(large.bytes);
      kept = memory.data();
      Sender sender = context.sender(1, kTag, memory.slice(0, large.bytes));
      sender.wait_connected(10s);
      host.run([] { board().await(kGo, 1); });
      sender.put(Stream::host(host));
    }
    open_another();
    ASSERT_TRUE(mapped(kept));
    fill({kept, large.bytes}, {0, kTag, 1});
    board().set(kGo, 1);
    context.synchronize(Stream::host(host));
    board().await(kClosed, 1);
    expect_within(10s, [&] {
      open_another();
      return !mapped(kept);
    });
  });
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_NE(ended.text.find("kept what a channel still uses"), std::string::npos) << ended.text;
}

TEST_P(Closing, ends_that_never_met_a_peer_close_at_once) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Buffer buffer(context, GetParam());
    const auto before = Clock::now();
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      const Receiver receiver = context.receiver(1, kTag, buffer.all());
      sender.close();
    }
    EXPECT_LT(Clock::now() - before, 15s);  // and not after the connect timeout
    board().meet(context);
  });
}

TEST_P(Closing, a_closed_channel_is_closed) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Buffer buffer(context, GetParam());
    const Rank other = 1 - context.rank();
    Sender sender = context.sender(other, kTag, buffer.all());
    Receiver receiver = context.receiver(other, kTag, buffer.all());
    sender.close();
    receiver.close();
    sender.close();  // once more does no harm
    receiver.close();
    expect_code(Code::misuse, [&] { sender.put({}); });
    expect_code(Code::misuse, [&] { receiver.wait({}); });
    expect_code(Code::misuse, [&] { receiver.release({}); });
    board().meet(context);
  });
}

/// Assignment closes what was there, as the destructor does.
TEST_P(Closing, moving_over_a_channel_closes_it) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one, 2 * one.bytes);
    const Slice first = buffer.all().slice(0, one.bytes);
    const Slice second = buffer.all().slice(one.bytes, one.bytes);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, first);
      fill(buffer.bytes(), {0, kTag, 1});
      sender.put({});
      sender = context.sender(1, kTag + 1, second);
      EXPECT_EQ(sender.tag(), kTag + 1);
      sender.put({});
    } else {
      Receiver receiver = context.receiver(0, kTag, first);
      receiver.wait({});
      Receiver moved = std::move(receiver);
      expect_code(Code::closed, [&] { moved.wait({}); });  // the sender was assigned over
      receiver = context.receiver(0, kTag + 1, second);
      receiver.wait({});
      EXPECT_EQ(difference(buffer.bytes(), {0, kTag, 1}), "");
    }
  });
}

/// Which end opens, works and closes first is up to chance, many times over.
TEST_P(Closing, any_order_works) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    constexpr int kRounds = 60;
    std::mt19937 both(20261121);                                          // what the two agree on
    std::mt19937 mine(static_cast<unsigned>(context.rank()) * 77U + 1U);  // what they do not
    const auto dawdle = [&] {
      if (mine() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(mine() % 500));
    };
    const Rank other = 1 - context.rank();
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const std::uint64_t puts = both() % 3;  // of 2 slots: none need be read
      const std::uint64_t reads = puts == 0 ? 0 : both() % (puts + 1);
      Case two = one;
      two.depth = 2;
      const Buffer source(context, two);
      const Buffer target(context, two);
      dawdle();
      Sender sender = context.sender(other, kTag, source.all(), {.depth = 2});
      dawdle();
      Receiver receiver = context.receiver(other, kTag, target.all(), {.depth = 2});
      for (std::uint64_t epoch = 1; epoch <= puts; ++epoch) {
        order.run([slot = sender.acquire(order.stream()), stamp = Stamp{context.rank(), kTag, 10 * round + epoch}] {
          fill(bytes_of(slot), stamp);
        });
        sender.put(order.stream());
      }
      if (mine() % 2 == 0) sender.close();
      for (std::uint64_t epoch = 1; epoch <= reads; ++epoch) {
        order.run([slot = receiver.wait(order.stream()), stamp = Stamp{other, kTag, 10 * round + epoch}] {
          expect_and_poison(slot, stamp);
        });
        if (mine() % 2 == 0) receiver.release(order.stream());
      }
      if (mine() % 2 == 0) receiver.close();
      dawdle();
    }
    context.synchronize(order.stream());
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Closing, testing::ValuesIn(stream_cases()), CaseName());
INSTANTIATE_IN_ITS_RANKS(QuickUser, Closing,
                         testing::Values(Case{.ground = {"shm", "shm", true}, .user = true, .bytes = 100'000}),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Closing,
                         testing::ValuesIn(on({{"posted", "posted"}, {"rung", "rung"}}, {Case{.host = true}})),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Closing, full_cases([] {
                           return with_sizes(on(all_grounds(), memory_cases()), {0, 4097});
                         }),
                         CaseName());

}  // namespace
