// SPDX-License-Identifier: Apache-2.0
// Channels that kernels drive, where kernels are functions of the host: the code that a GPU runs, compiled for it.
#include <sluice/device.hpp>

#include <bit>

#include "tests/conformance/released.hpp"
#include "tests/host_block.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::uint32_t kGroupThreads = 3;
constexpr std::uint64_t kFew = 10;  // polls
constexpr kernel::Thread kThread;

class Devices : public testing::TestWithParam<Case> {};

/// With slots that have parts.
class DevicesInParts : public Devices {};

std::vector<Case> device_cases() {
  std::vector<Case> cases = stream_cases();
  std::erase_if(cases, [](const Case& one) { return one.cuda; });
  return with_depths(with_sizes(cases, {0, 13, 70'000}), {1, 3});
}

/// Both ends between two ranks, driven by kernels.
struct BothWays {
  BothWays(Context& context, const Case& one, Order& order)
      : other(1 - context.rank()), source(context, one), target(context, one),
        sender(context.sender(other, kTag, source.all(), {.depth = one.depth})),
        receiver(context.receiver(other, kTag, target.all(), {.depth = one.depth})),
        out(sender.on_device(order.stream())), in(receiver.on_device(order.stream())) {}

  Rank other;
  Buffer source;
  Buffer target;
  Sender sender;
  Receiver receiver;
  DeviceSender out;
  DeviceReceiver in;
};

/// As a block of threads, and as one.
template <class Kernel>
void run_kernel(Order& order, std::uint32_t threads, Kernel kernel) {
  order.run([threads, kernel] {
    if (threads == 1) return kernel(kThread);
    run_block(threads, kernel);
  });
}

void put(Order& order, const DeviceSender& out, std::uint32_t threads, const Stamp& stamp) {
  run_kernel(order, threads, [out, stamp](const auto& group) {
    std::byte* slot = nullptr;
    EXPECT_EQ(out.acquire(group, slot), DeviceResult::ok);
    if (group.index() == 0) fill({slot, out.slot_bytes()}, stamp);
    EXPECT_EQ(out.put(group), DeviceResult::ok);
  });
}

void take(Order& order, const DeviceReceiver& in, std::uint32_t threads, const Stamp& stamp) {
  run_kernel(order, threads, [in, stamp](const auto& group) {
    const std::byte* slot = nullptr;
    EXPECT_EQ(in.wait(group, slot), DeviceResult::ok);
    if (group.index() == 0) {
      EXPECT_EQ(difference({slot, in.slot_bytes()}, stamp), "");
    }
    EXPECT_NE(in.release(group), DeviceResult::failed);  // the peer may have closed its end
  });
}

TEST_P(Devices, move_every_byte_of_every_epoch) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const BothWays pair(context, one, order);
    const std::uint64_t epochs = one.times(50);
    for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch) {
      const std::uint32_t threads = epoch % 2 == 0 ? 1 : kGroupThreads;
      put(order, pair.out, threads, {context.rank(), kTag, epoch});
      take(order, pair.in, threads, {pair.other, kTag, epoch});
    }
    context.synchronize(order.stream());
    EXPECT_EQ(pair.sender.epoch(), epochs);
    EXPECT_EQ(pair.receiver.epoch(), epochs);
    board().meet(context);
  });
}

TEST_P(Devices, go_on_from_where_streams_were) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Rank other = 1 - context.rank();
    const Buffer source(context, one);
    const Buffer target(context, one);
    Sender sender = context.sender(other, kTag, source.all(), {.depth = one.depth});
    Receiver receiver = context.receiver(other, kTag, target.all(), {.depth = one.depth});
    constexpr std::uint64_t kBefore = 4;
    for (std::uint64_t epoch = 1; epoch <= kBefore; ++epoch) {
      const Slice slot = sender.acquire(order.stream());
      order.run([slot, stamp = Stamp{context.rank(), kTag, epoch}] { fill(bytes_of(slot), stamp); });
      sender.put(order.stream());
      order.run([slot = receiver.wait(order.stream()), stamp = Stamp{other, kTag, epoch}] {
        expect_and_poison(slot, stamp);
      });
      receiver.release(order.stream());
    }
    context.synchronize(order.stream());
    const DeviceSender out = sender.on_device(order.stream());
    const DeviceReceiver in = receiver.on_device(order.stream());
    for (std::uint64_t epoch = kBefore + 1; epoch <= 3 * kBefore; ++epoch) {
      put(order, out, 1, {context.rank(), kTag, epoch});
      take(order, in, 1, {other, kTag, epoch});
    }
    context.synchronize(order.stream());
    board().meet(context);
  });
}

TEST_P(DevicesInParts, move_a_part_or_what_the_kernel_writes_at_the_peer) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const BothWays pair(context, one, order);
    const bool in_parts = pair.out.moves_parts();  // as those of the other rank
    const std::size_t offset = in_parts ? one.bytes / 3 : 0;
    const std::size_t part = in_parts ? one.bytes / 2 : one.bytes;
    const Stamp mine{context.rank(), kTag, 1};
    const Stamp theirs{pair.other, kTag, 1};
    run_kernel(order, kGroupThreads, [&, out = pair.out](const auto& group) {
      std::byte* slot = nullptr;
      EXPECT_EQ(out.acquire(group, slot), DeviceResult::ok);
      if (group.index() == 0) fill({slot, one.bytes}, mine);
      if (!out.moves_parts()) {
        EXPECT_EQ(out.put(group, 0, one.bytes / 2), DeviceResult::refused);
        EXPECT_EQ(out.put(group, one.bytes, 0), DeviceResult::refused);
      }
      EXPECT_EQ(out.put(group, offset, part), DeviceResult::ok);
    });
    run_kernel(order, kGroupThreads, [&, in = pair.in](const auto& group) {
      const std::byte* slot = nullptr;
      EXPECT_EQ(in.wait(group, slot), DeviceResult::ok);
      if (group.index() == 0) {
        EXPECT_EQ(difference({slot + offset, part}, theirs, offset), "");
        EXPECT_EQ(unlike_poison({slot, offset}), "");
        EXPECT_EQ(unlike_poison({slot + offset + part, one.bytes - offset - part}), "");
      }
      EXPECT_EQ(in.release(group), DeviceResult::ok);
    });
    context.synchronize(order.stream());
    run_kernel(order, kGroupThreads, [&, out = pair.out](const auto& group) {
      std::byte* slot = nullptr;
      if (!out.is_mapped()) {
        EXPECT_EQ(out.begin_put(group, slot), DeviceResult::refused);
        EXPECT_EQ(out.acquire(group, slot), DeviceResult::ok);
        if (group.index() == 0) fill({slot, one.bytes}, {context.rank(), kTag, 2});
        EXPECT_EQ(out.ring(group), DeviceResult::ok);
        return;
      }
      EXPECT_EQ(out.ring(group), DeviceResult::refused);
      EXPECT_EQ(out.begin_put(group, slot), DeviceResult::ok);
      if (group.index() == 0) fill({slot, one.bytes}, {context.rank(), kTag, 2});
      out.signal(group);
    });
    take(order, pair.in, kGroupThreads, {pair.other, kTag, 2});
    context.synchronize(order.stream());
    board().meet(context);
  });
}

TEST_P(Devices, stop_waiting_when_they_were_told_to_and_change_nothing) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const BothWays pair(context, one, order);
    board().meet(context);
    run_kernel(order, kGroupThreads, [in = pair.in](const auto& group) {
      const std::byte* slot = nullptr;
      EXPECT_EQ(in.wait(group, slot, Polls{kFew}), DeviceResult::timeout);
      EXPECT_EQ(slot, nullptr);
    });
    context.synchronize(order.stream());
    EXPECT_EQ(pair.receiver.epoch(), 0U);
    board().meet(context);
    const auto depth = static_cast<std::uint64_t>(one.depth);
    for (std::uint64_t epoch = 1; epoch <= depth; ++epoch)
      put(order, pair.out, kGroupThreads, {context.rank(), kTag, epoch});
    run_kernel(order, kGroupThreads, [out = pair.out](const auto& group) {
      EXPECT_EQ(out.put(group, Polls{kFew}), DeviceResult::timeout);  // without a credit
    });
    context.synchronize(order.stream());
    EXPECT_EQ(pair.sender.epoch(), depth);
    board().meet(context);
    for (std::uint64_t epoch = 1; epoch <= depth; ++epoch)
      take(order, pair.in, kGroupThreads, {pair.other, kTag, epoch});
    put(order, pair.out, kGroupThreads, {context.rank(), kTag, depth + 1});
    take(order, pair.in, kGroupThreads, {pair.other, kTag, depth + 1});
    context.synchronize(order.stream());
    board().meet(context);
  });
}

TEST_P(Devices, are_released_by_a_failure_and_move_nothing_after_it) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const BothWays pair(context, one, order);
    board().meet(context);
    std::jthread aborting([&] {
      std::this_thread::sleep_for(20ms);
      context.abort("enough");
    });
    expect_released([&] {
      run_kernel(order, kGroupThreads, [&pair](const auto& group) {
        const std::byte* slot = nullptr;
        EXPECT_EQ(pair.in.wait(group, slot), DeviceResult::failed);
        DeviceResult result = DeviceResult::ok;  // one end fails after the other
        while (result == DeviceResult::ok) result = pair.out.put(group);
        EXPECT_EQ(result, DeviceResult::failed);
      });
      expect_code(Code::aborted, [&] { context.synchronize(order.stream()); });
    });
    expect_code(Code::aborted, [&] { pair.sender.connected(), context.check(); });
    board().meet(context);
  });
}

/// Kernels that are about to look: a word in flight to them covers the poison.
TEST_P(Devices, say_that_the_channel_has_failed_where_they_find_no_poison) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const BothWays pair(context, one, order);
    put(order, pair.out, 1, {context.rank(), kTag, 1});
    run_kernel(order, 1, [in = pair.in](const auto& group) {
      const std::byte* slot = nullptr;
      EXPECT_EQ(in.wait(group, slot), DeviceResult::ok);
    });
    context.synchronize(order.stream());
    board().meet(context);
    context.abort("enough");
    const auto out = std::bit_cast<kernel::Out>(pair.out);
    const auto in = std::bit_cast<kernel::In>(pair.in);
    const auto cover = [](const std::uint64_t* word) { kernel::store_release(const_cast<std::uint64_t&>(*word), 1); };
    cover(out.credit);
    EXPECT_EQ(pair.out.put(kThread), DeviceResult::failed);
    for (std::uint64_t rail = 0; rail < in.rails; ++rail) cover(in.signals[rail]);
    EXPECT_EQ(pair.in.release(kThread), DeviceResult::failed);
    expect_code(Code::aborted, [&] { context.synchronize(order.stream()); });
    board().meet(context);
  });
}

TEST_P(Devices, find_nothing_to_do_once_the_channel_is_closed) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    BothWays pair(context, one, order);
    put(order, pair.out, 1, {context.rank(), kTag, 1});
    take(order, pair.in, 1, {pair.other, kTag, 1});
    context.synchronize(order.stream());
    pair.sender.close();
    pair.receiver.close();
    run_kernel(order, kGroupThreads, [&pair](const auto& group) {
      const std::byte* slot = nullptr;
      std::byte* source = nullptr;
      EXPECT_EQ(pair.out.acquire(group, source), DeviceResult::closed);
      EXPECT_EQ(source, nullptr);
      EXPECT_EQ(pair.out.put(group), DeviceResult::closed);
      EXPECT_EQ(pair.in.wait(group, slot), DeviceResult::closed);
      EXPECT_EQ(pair.in.release(group), DeviceResult::closed);
    });
    context.synchronize(order.stream());
    board().meet(context);
  });
}

/// The first put of a kernel that has said so and not looked yet whether the end is closed; `enters`: it found it open.
void close_amid_a_put(Context& context, const Case& one, bool enters) {
  Order order(one);
  const Buffer source(context, one);
  const std::size_t at = one.depth == 1 ? 0 : one.bytes;  // of the slot
  fill(source.bytes().subspan(at, one.bytes), {0, kTag, 1});
  Sender sender = context.sender(1, kTag, source.all(), {.depth = one.depth});
  const auto out = std::bit_cast<kernel::Out>(sender.on_device(order.stream()));
  kernel::store_release(out.count->begun, 1);
  std::atomic<bool> closed{false};
  std::jthread closing([&] {
    sender.close();
    closed = true;
  });
  while (kernel::load_acquire(out.count->closed) == 0) std::this_thread::yield();
  expect_for(20ms, [&] { return !closed; });
  if (enters) {
    kernel::store_relaxed(out.count->entered, 1);
    if (!out.rings) kernel::copy(kThread, out.target + at, out.source + at, one.bytes);
    kernel::end_put(out, 1, 0, one.bytes);
  } else {
    kernel::store_release(out.count->begun, 0);
  }
}

/// The peer learns how many epochs there are, and waits for all of them.
TEST_P(Devices, are_waited_for_by_who_closes_while_they_begin_an_epoch) {
  for (const bool enters : {false, true}) {
    run_peers(GetParam().peers(), [enters](Context& context) {
      const Case& one = GetParam();
      if (context.rank() == 0) return close_amid_a_put(context, one, enters);
      const Buffer target(context, one);
      Receiver receiver = context.receiver(0, kTag, target.all(), {.depth = one.depth});
      if (enters) {
        expect_and_poison(receiver.wait({}), {0, kTag, 1});
        receiver.release({});
      } else {
        expect_code(Code::closed, [&] { receiver.wait({}); });
      }
      receiver.close();
    });
  }
}

/// Meanwhile the puts that were armed ahead are discarded.
TEST_P(Devices, see_no_epoch_that_a_sender_has_not_put_before_it_closed) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    BothWays pair(context, one, order);
    put(order, pair.out, 1, {context.rank(), kTag, 1});
    take(order, pair.in, 1, {pair.other, kTag, 1});
    context.synchronize(order.stream());
    pair.sender.close();
    board().meet(context);
    run_kernel(order, kGroupThreads, [in = pair.in](const auto& group) {
      const std::byte* slot = nullptr;
      EXPECT_EQ(in.wait(group, slot, Polls{kFew}), DeviceResult::timeout);
    });
    context.synchronize(order.stream());
    EXPECT_EQ(pair.receiver.epoch(), 1U);
    board().meet(context);
  });
}

/// Its memory may be anything by then.
TEST_P(Devices, move_nothing_once_the_peer_has_closed_its_end) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    BothWays pair(context, one, order);
    board().meet(context);
    if (context.rank() == 1) {
      pair.receiver.close();
      board().meet(context);
      board().meet(context);
      EXPECT_EQ(unlike_poison(pair.target.bytes()), "");
      return;
    }
    board().meet(context);
    const auto depth = static_cast<std::uint64_t>(one.depth);
    for (std::uint64_t epoch = 1; epoch <= depth; ++epoch) {
      run_kernel(order, kGroupThreads,
                 [&pair](const auto& group) { EXPECT_EQ(pair.out.put(group), DeviceResult::closed); });
    }
    context.synchronize(order.stream());
    pair.sender.drain();
    run_kernel(order, kGroupThreads, [&pair](const auto& group) {
      EXPECT_EQ(pair.out.put(group), DeviceResult::failed);  // which will never be credited
    });
    expect_code(Code::misuse, [&] { context.synchronize(order.stream()); });
    board().meet(context);
  });
}

TEST_P(Devices, that_release_what_they_did_not_wait_for_fail_the_channel) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const BothWays pair(context, one, order);
    board().meet(context);
    if (context.rank() == 0) {
      run_kernel(order, kGroupThreads, [&pair](const auto& group) {
        const std::byte* slot = nullptr;
        EXPECT_EQ(pair.in.release(group), DeviceResult::failed);
        EXPECT_EQ(pair.in.wait(group, slot), DeviceResult::failed);  // until the engine has seen it
      });
      expect_code(Code::misuse, [&] { context.synchronize(order.stream()); });
    } else {
      expect_reported(context, Code::misuse);
    }
    board().meet(context);
  });
}

TEST_P(Devices, leave_no_verb_to_the_host) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    BothWays pair(context, one, order);
    for (const auto& error : {expect_code(Code::misuse, [&] { pair.sender.put(order.stream()); }),
                              expect_code(Code::misuse, [&] { pair.receiver.wait(order.stream()); }),
                              expect_code(Code::misuse, [&] { pair.receiver.test(); }),
                              expect_code(Code::misuse, [&] { pair.sender.on_device(order.stream()); })}) {
      ASSERT_TRUE(error);
      EXPECT_NE(std::string(error->what()).find("kernels drive this channel"), std::string::npos) << error->what();
    }
    board().meet(context);
  });
}

std::vector<Case> wrapped_cases() { return on(wrapped_grounds(), with_depths(with_sizes({Case{}}, {0, 13}), {1, 3})); }

std::vector<Case> in_parts(std::vector<Case> cases) {
  std::erase_if(cases, [](const Case& one) { return one.bytes == 0; });
  return cases;
}

INSTANTIATE_IN_ITS_RANKS(Quick, Devices, testing::ValuesIn(device_cases()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Devices, testing::ValuesIn(wrapped_cases()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, DevicesInParts, testing::ValuesIn(in_parts(device_cases())), CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, DevicesInParts, testing::ValuesIn(in_parts(wrapped_cases())), CaseName());

/// Uses that kernels do not support report an error.
class DevicesRefused : public testing::TestWithParam<Case> {};

TEST_P(DevicesRefused, where_somebody_else_would_have_to_act_first) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Rank other = 1 - context.rank();
    const Buffer source(context, one);
    const Buffer target(context, one);
    Sender sender = context.sender(other, kTag, source.all(), {.depth = one.depth});
    Receiver receiver = context.receiver(other, kTag, target.all(), {.depth = one.depth});
    expect_code(Code::unsupported, [&] { sender.on_device(order.stream()); });
    expect_code(Code::unsupported, [&] { receiver.on_device(order.stream()); });
    sender.put(order.stream());  // the refusal has changed nothing
    receiver.wait(order.stream());
    receiver.release(order.stream());
    context.synchronize(order.stream());
    board().meet(context);
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, DevicesRefused, testing::Values(Case{.ground = {"shm", "shm", true}, .user = true}),
                         CaseName());

}  // namespace
