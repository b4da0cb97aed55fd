// SPDX-License-Identifier: Apache-2.0
// Put n changes no byte of its slot before epoch n-d was released.
#include <algorithm>
#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kPutsFired = 0;  // on the board: how many puts of the sender's stream have fired
constexpr std::size_t kStart = 1;      // and when it may begin

class Credits : public testing::TestWithParam<Case> {
 protected:
  /// One slot more than the receiver has, so that acquire never holds the sender.
  static Case sender_case() {
    Case sender = GetParam();
    sender.depth += 1;
    return sender;
  }
};

void put_epochs(Context& context, const Case& one, std::uint64_t epochs) {
  Order order(one);
  const Stream stream = order.stream();
  const Buffer source(context, one);
  Sender sender = context.sender(1, kTag, source.all(), {.depth = one.depth});
  for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch) {
    order.run([slot = sender.acquire(stream), epoch] { fill(bytes_of(slot), {0, kTag, epoch}); });
    sender.put(stream);
    order.run([epoch] { board().set(kPutsFired, epoch); });
  }
  context.synchronize(stream);
  board().meet(context);  // with the channel open: the receiver polls for epochs that never arrive
}

Tag tag_of_depth(int depth) { return kTag + static_cast<Tag>(depth); }

/// Three times as many puts as the receiver has slots, enqueued on a stream that stands still until kStart.
struct FarAhead {
  FarAhead(Context& context, Case one) {
    const Tag tag = tag_of_depth(one.depth);
    one.depth *= 3;
    source.emplace(context, one);
    sender = context.sender(1, tag, source->all(), {.depth = one.depth});
    const Stream stream = Stream::host(host);
    host.run([] { board().await(kStart, 1); });
    for (std::uint64_t epoch = 1; epoch <= static_cast<std::uint64_t>(one.depth); ++epoch) {
      fill(bytes_of(sender.acquire(stream)), {0, tag, epoch});
      sender.put(stream);
    }
  }

  HostStream host;
  std::optional<Buffer> source;
  Sender sender;
};

/// Has waited for as many epochs as there are slots, and released none.
class Withholding {
 public:
  Withholding(Context& context, const Case& one)
      : depth_(static_cast<std::uint64_t>(one.depth)), tag_(tag_of_depth(one.depth)), order_(one),
        target_(context, one), receiver_(context.receiver(0, tag_, target_.all(), {.depth = one.depth})) {
    for (std::uint64_t epoch = 1; epoch <= depth_; ++epoch) slots_.push_back(receiver_.wait(order_.stream()));
    context.synchronize(order_.stream());
  }

  bool nothing_else_came() {
    for (std::uint64_t epoch = 1; epoch <= depth_; ++epoch) {
      if (!difference(bytes_of(slots_[epoch - 1]), {0, tag_, epoch}).empty()) return false;
    }
    return !receiver_.test();
  }

  void release_and_take_the_rest(Context& context) {
    for (std::uint64_t epoch = depth_ + 1; epoch <= 3 * depth_; ++epoch) {
      receiver_.release(order_.stream());
      order_.run(
          [slot = receiver_.wait(order_.stream()), stamp = Stamp{0, tag_, epoch}] { expect_and_poison(slot, stamp); });
    }
    context.synchronize(order_.stream());
  }

 private:
  std::uint64_t depth_;
  Tag tag_;
  Order order_;
  Buffer target_;
  Receiver receiver_;
  std::vector<Slice> slots_;
};

TEST_P(Credits, exactly_depth_puts_land_before_a_release) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const auto depth = static_cast<std::uint64_t>(one.depth);
    if (context.rank() == 0) return put_epochs(context, sender_case(), 2 * depth);
    const Buffer target(context, one);
    Receiver receiver = context.receiver(0, kTag, target.all(), {.depth = one.depth});
    std::vector<Slice> slots;
    for (std::uint64_t epoch = 1; epoch <= depth; ++epoch) slots.push_back(receiver.wait({}));
    const auto nothing_else_came = [&] {
      for (std::uint64_t epoch = 1; epoch <= depth; ++epoch) {
        if (!difference(bytes_of(slots[epoch - 1]), {0, kTag, epoch}).empty()) return false;
      }
      return board().word(kPutsFired) <= depth && !receiver.test();
    };
    expect_for(30ms, nothing_else_came);
    receiver.release({});
    board().await(kPutsFired, depth + 1);  // now one more, and only one
    EXPECT_EQ(difference(bytes_of(receiver.wait({})), {0, kTag, depth + 1}), "");
    expect_for(10ms, [&] { return board().word(kPutsFired) == depth + 1 && !receiver.test(); });
    for (std::uint64_t left = 2; left <= depth; ++left) {
      receiver.release({});
      EXPECT_EQ(difference(bytes_of(receiver.wait({})), {0, kTag, depth + left}), "");
    }
    for (std::uint64_t left = 0; left < depth; ++left) receiver.release({});
    board().meet(context);
  });
}

/// Rings and credits are not to be added up: far ahead of the receiver, the sum is there long before the credit.
TEST_P(Credits, exactly_depth_puts_land_where_the_stream_is_three_rounds_ahead) {
  Peers peers = GetParam().peers();
  peers.limit = 60s;  // 20 hops, one after another
  run_peers(peers, [](Context& context) {
    std::vector<std::unique_ptr<FarAhead>> senders;
    std::vector<std::unique_ptr<Withholding>> receivers;
    Case one = GetParam();
    if (context.rank() == 0) {
      for (one.depth = 1; one.depth <= 4; ++one.depth) senders.push_back(std::make_unique<FarAhead>(context, one));
      board().set(kStart, 1);
      for (const auto& sender : senders) context.synchronize(Stream::host(sender->host));
    } else {
      board().await(kStart, 1);
      for (one.depth = 1; one.depth <= 4; ++one.depth) receivers.push_back(std::make_unique<Withholding>(context, one));
      expect_for(30ms, [&] {
        return std::all_of(receivers.begin(), receivers.end(),
                           [](auto& receiver) { return receiver->nothing_else_came(); });
      });
      for (const auto& receiver : receivers) receiver->release_and_take_the_rest(context);
    }
    board().meet(context);
  });
}

TEST_P(Credits, a_fast_sender_never_overwrites_an_epoch_that_was_not_released) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    constexpr std::uint64_t kEpochs = 60;
    if (context.rank() == 0) return put_epochs(context, sender_case(), kEpochs);
    const Buffer target(context, one);
    Receiver receiver = context.receiver(0, kTag, target.all(), {.depth = one.depth});
    std::mt19937 random(20261121);
    for (std::uint64_t epoch = 1; epoch <= kEpochs; ++epoch) {
      const Slice slot = receiver.wait({});
      // Holds some of them for a while, with the sender hungry.
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      expect_and_poison(slot, {0, kTag, epoch});
      receiver.release({});
    }
    board().meet(context);
  });
}

TEST_P(Credits, a_receiver_that_only_waits_gives_none) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const auto depth = static_cast<std::uint64_t>(one.depth);
    if (context.rank() == 0) return put_epochs(context, sender_case(), depth + 1);
    Order order(one);
    const Buffer target(context, one);
    Receiver receiver = context.receiver(0, kTag, target.all(), {.depth = one.depth});
    for (std::uint64_t epoch = 1; epoch <= depth; ++epoch) receiver.wait(order.stream());
    context.synchronize(order.stream());
    expect_for(30ms, [&] { return board().word(kPutsFired) <= depth; });
    for (std::uint64_t epoch = 1; epoch <= depth; ++epoch) receiver.release(order.stream());
    receiver.wait(order.stream());
    context.synchronize(order.stream());
    receiver.release(order.stream());
    context.synchronize(order.stream());
    board().meet(context);
  });
}

void take(Receiver& receiver) {
  receiver.wait({});
  receiver.release({});
}

/// Each epoch is answered, until the engines leave the work to the waiting ranks.
void ping_pong_for_a_while(Context& context, Sender& sender, Receiver& receiver, std::uint64_t round = 1) {
  using Clock = std::chrono::steady_clock;
  if (context.rank() == 0) {
    const auto end = Clock::now() + 10ms;
    for (bool last = false; !last;) {
      last = Clock::now() >= end;
      if (last) board().set(kStart, round);
      sender.put({});
      take(receiver);
    }
  } else {
    for (bool last = false; !last; sender.put({})) {
      take(receiver);
      last = board().word(kStart) == round;
    }
  }
}

/// Credits may wait for the next put that goes to the sender: also when none comes, and when none follows that one.
TEST_P(Credits, arrive_though_the_receiver_calls_nothing_more) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer source(context, one);
    const Buffer target(context, one);
    Sender sender = context.sender(1 - context.rank(), kTag, source.all(), {.depth = one.depth});
    Receiver receiver = context.receiver(1 - context.rank(), kTag, target.all(), {.depth = one.depth});
    for (const std::uint64_t round : {1, 2, 3, 4}) {
      const bool put_follows = round % 2 == 0;
      ping_pong_for_a_while(context, sender, receiver, round);
      if (context.rank() == 0) {
        for (int i = 0; i <= one.depth; ++i) sender.put({});  // the last needs the credit of the first
        board().set(kPutsFired, round);
        if (put_follows) take(receiver);
      } else {
        take(receiver);
        if (put_follows) sender.put({});
        board().await(kPutsFired, round);
        for (int i = 0; i < one.depth; ++i) take(receiver);
      }
    }
    board().meet(context);
  });
}

class DeepCredits : public testing::TestWithParam<Case> {};

/// More at once than half a number can count (ofi/manner.hpp).
TEST_P(DeepCredits, of_thousands_of_slots_are_told_at_once) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr int kSlots = 2500;
    constexpr int kRounds = 5;
    const Memory memory = context.allocate(8 * kSlots);
    const Memory answer = context.allocate(8);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, memory.all(), {.depth = kSlots});
      Receiver receiver = context.receiver(1, kTag + 1, answer.all());
      ping_pong_for_a_while(context, sender, receiver);
      for (int round = 0; round < kRounds; ++round) {
        for (int i = 0; i < kSlots; ++i) sender.put({});
        take(receiver);
      }
    } else {
      Receiver receiver = context.receiver(0, kTag, memory.all(), {.depth = kSlots});
      Sender sender = context.sender(0, kTag + 1, answer.all());
      ping_pong_for_a_while(context, sender, receiver);
      for (int round = 0; round < kRounds; ++round) {
        for (int i = 0; i < kSlots; ++i) receiver.wait({});
        for (int i = 0; i < kSlots; ++i) receiver.release({});
        sender.put({});
      }
    }
    board().meet(context);
  });
}

/// The source may have other slots than the target.
TEST_P(Credits, source_and_target_have_depths_of_their_own) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    if (context.rank() == 0) {
      Case sender = one;
      sender.depth = 3;
      return put_epochs(context, sender, 41);
    }
    Order order(one);
    const Buffer target(context, one);
    Receiver receiver = context.receiver(0, kTag, target.all(), {.depth = one.depth});
    for (std::uint64_t epoch = 1; epoch <= 41; ++epoch) {
      const Slice slot = receiver.wait(order.stream());
      const auto index = epoch % static_cast<std::uint64_t>(one.depth);
      EXPECT_EQ(slot.data(), target.all().data() + index * one.bytes);
      order.run([slot, epoch] { expect_and_poison(slot, {0, kTag, epoch}); });
      receiver.release(order.stream());
    }
    context.synchronize(order.stream());
    board().meet(context);
  });
}

class Acquire : public testing::TestWithParam<Case> {};

/// With one source slot, put n may still be reading it while it waits for its credit: acquire is what keeps the data
/// right.
TEST_P(Acquire, the_source_may_be_overwritten_once_acquire_has_passed) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    if (context.rank() == 0) {
      board().await(kStart, 1);
      Case sender = one;
      sender.depth = 1;
      return put_epochs(context, sender, 40);
    }
    Order order(one);
    const Buffer target(context, one);
    Receiver receiver = context.receiver(0, kTag, target.all(), {.depth = one.depth});
    board().set(kStart, 1);
    for (std::uint64_t epoch = 1; epoch <= 40; ++epoch) {
      order.run([slot = receiver.wait(order.stream()), epoch] { expect_and_poison(slot, {0, kTag, epoch}); });
      receiver.release(order.stream());
    }
    context.synchronize(order.stream());
    board().meet(context);
  });
}

/// "acquire ... returns it": always the slot that the next put reads, however often it is called.
TEST_P(Acquire, returns_the_slot_of_the_next_put) {
  run_peers(GetParam().peers(), [](Context& context) {
    Case one = GetParam();
    one.depth = 4;
    ChannelEnd end(context, one);
    if (end.first) {
      for (std::uint64_t epoch = 1; epoch <= 9; ++epoch) {
        const Slice slot = end.sender.acquire(end.stream());
        EXPECT_EQ(slot.data(), end.buffer.all().data() + epoch % 4 * one.bytes);
        EXPECT_EQ(slot.bytes(), one.bytes);
        EXPECT_EQ(end.sender.acquire(end.stream()).data(), slot.data());
        end.sender.put(end.stream());
      }
      context.synchronize(end.stream());
    } else {
      for (std::uint64_t epoch = 1; epoch <= 9; ++epoch) {
        end.receiver.wait({});
        end.receiver.release({});
      }
    }
  });
}

/// Work that follows an acquire may change the source, also on another stream than the put's, which is held up here.
template <class Acquired>
void put_on_one_stream_and_acquire_on_another(Context& context, const Buffer& buffer, Acquired& end,
                                              void (Acquired::*put)(Stream), Order& first, Order& second) {
  fill(buffer.bytes(), {0, kTag, 2});
  std::promise<void> free;
  std::atomic<bool> passed{false};
  first.run([freed = free.get_future().share()] { freed.wait(); });
  (end.*put)(first.stream());
  end.acquire(second.stream());
  second.run([&] { passed = true; });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(passed);
  free.set_value();
  context.synchronize(second.stream());
  std::ranges::fill(buffer.bytes(), std::byte{0xee});
  context.synchronize(first.stream());
}

TEST_P(Acquire, of_another_stream_waits_for_the_put) {
  for (const bool planned : {false, true}) {
    run_peers(GetParam().peers(), [planned](Context& context) {
      Case one = GetParam();
      one.depth = 1;
      Order first(one);
      if (!first.host()) return;
      Order second(one);
      const Buffer buffer(context, one);
      if (context.rank() == 0) {
        Sender sender = context.sender(1, kTag, buffer.all());
        sender.put(second.stream());  // a driver waits for its streams where a channel is used first
        context.synchronize(second.stream());
        if (planned) {
          Plan plan = context.plan();
          plan.add(sender).commit(second.stream());
          put_on_one_stream_and_acquire_on_another(context, buffer, plan, &Plan::start, first, second);
        } else {
          put_on_one_stream_and_acquire_on_another(context, buffer, sender, &Sender::put, first, second);
        }
      } else {
        Receiver receiver = context.receiver(0, kTag, buffer.all());
        receiver.wait({});
        receiver.release({});
        EXPECT_EQ(difference(bytes_of(receiver.wait({})), {0, kTag, 2}), "");
        receiver.release({});
      }
      board().meet(context);
    });
  }
}

/// A stream that comes to its acquire late must find the word there that it waits for.
TEST_P(Acquire, of_another_stream_is_awaited_by_close) {
  if (!GetParam().cuda) return;
  run_peers(GetParam().peers(), [](Context& context) {
    Case one = GetParam();
    one.depth = 1;
    Order first(one);
    Order second(one);
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      sender.put(second.stream());
      context.synchronize(second.stream());
      std::promise<void> puts;
      std::promise<void> acquires;
      first.run([freed = puts.get_future().share()] { freed.wait(); });
      second.run([freed = acquires.get_future().share()] { freed.wait(); });
      sender.put(first.stream());
      sender.acquire(second.stream());
      puts.set_value();
      context.synchronize(first.stream());
      expect_code(Code::timeout, [&] { sender.close(200ms); });
      acquires.set_value();
      sender.close();
      context.synchronize(second.stream());
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      for (int epoch = 1; epoch <= 2; ++epoch) {
        receiver.wait({});
        receiver.release({});
      }
      receiver.close();
    }
    board().meet(context);
  });
}

/// Nothing that is enqueued later makes the engine look at the put.
TEST_P(Acquire, may_be_the_last_work_of_a_stream) {
  run_peers(GetParam().peers(), [](Context& context) {
    Case one = GetParam();
    one.depth = 1;
    ChannelEnd end(context, one);
    for (std::uint64_t epoch = 1; epoch <= one.times(200); ++epoch) {
      if (end.first) {
        end.sender.put(end.stream());
        end.sender.acquire(end.stream());
        context.synchronize(end.stream());
      } else {
        end.receiver.wait(end.stream());
        end.receiver.release(end.stream());
      }
    }
    context.synchronize(end.stream());
    board().meet(context);
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Credits, testing::ValuesIn(with_sizes(with_depths(memory_cases(), {2}), {64})),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(QuickDepths, Credits,
                         testing::ValuesIn(with_sizes(with_depths(stream_cases(), {1, 8}), {4097})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Credits,
                         testing::ValuesIn(on(wrapped_grounds(), with_depths(stream_cases(), {1, 8}))), CaseName());
INSTANTIATE_IN_ITS_RANKS(
    Full, Credits, full_cases([] {
      return with_sizes(with_depths(on(all_grounds(), memory_cases()), {1, 2, 3, 8}), {8, 4097, 1024 * 1024});
    }),
    CaseName());

/// Ten thousand puts, where they do not take milliseconds each.
std::vector<Case> deep_cases() {
  std::vector<Case> cases = with_sizes(with_depths(stream_cases(), {1}), {8});
  std::erase_if(cases, [](const Case& one) { return one.ground.slow; });
  return cases;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeepCredits);
INSTANTIATE_IN_ITS_RANKS(Quick, DeepCredits, testing::ValuesIn(deep_cases()), CaseName());

INSTANTIATE_IN_ITS_RANKS(Quick, Acquire, testing::ValuesIn(with_sizes(stream_cases(), {4096})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Acquire, testing::ValuesIn(on(wrapped_grounds(), with_depths(stream_cases(), {2}))),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Acquire, full_cases([] {
                           return with_depths(on(all_grounds(), memory_cases()), {1, 2, 8});
                         }),
                         CaseName());

}  // namespace
