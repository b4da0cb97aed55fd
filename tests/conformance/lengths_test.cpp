// SPDX-License-Identifier: Apache-2.0
// ChannelOptions::lengths: a receiver learns how many bytes a put had.
#include <sluice/device.hpp>

#include <random>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class Lengths : public testing::TestWithParam<Case> {};

struct PartOfSlot {
  std::size_t offset;
  std::size_t bytes;
};

/// Edges first; a fixed seed chose the others.
PartOfSlot put_of(std::uint64_t epoch, std::size_t slot) {
  if (epoch == 1) return {0, slot};
  if (epoch == 2) return {slot / 2, 0};
  std::minstd_rand random(static_cast<unsigned>(epoch) * 7919);
  const std::size_t offset = random() % (slot + 1);
  return {offset, random() % (slot - offset + 1)};
}

void put_next(ChannelEnd& end, std::size_t slot) {
  const std::uint64_t epoch = end.sender.epoch() + 1;
  const PartOfSlot put = put_of(epoch, slot);
  end.order.run([to = end.sender.acquire(end.stream()), epoch] { fill(bytes_of(to), {0, kTag, epoch}); });
  end.sender.put(end.stream(), put.offset, put.bytes);
}

/// What the stream counts shows that its callables ran.
TEST_P(Lengths, are_those_of_the_put_that_the_wait_has_seen) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const std::uint64_t epochs = one.times(200) / 4;
    ChannelEnd end(context, one, {.lengths = true});
    std::atomic<std::uint64_t> checked{0};
    for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch) {
      if (end.first) {
        put_next(end, one.bytes);
        continue;
      }
      end.order.run([&, slot = end.receiver.wait(end.stream()), epoch] {
        const PartOfSlot put = put_of(epoch, one.bytes);
        EXPECT_EQ(end.receiver.bytes(), put.bytes) << "epoch " << epoch;
        EXPECT_EQ(difference(bytes_of(slot).subspan(put.offset, put.bytes), {0, kTag, epoch}, put.offset), "");
        ++checked;
      });
      end.receiver.release(end.stream());
    }
    context.synchronize(end.stream());
    EXPECT_EQ(checked, end.first ? 0 : epochs);
    if (end.first) {
      EXPECT_NE(end.sender.describe().find("its length by a second put"), std::string::npos) << end.sender.describe();
    }
  });
}

TEST_P(Lengths, are_known_from_the_wait_to_the_release) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    ChannelEnd end(context, one, {.lengths = true});
    if (end.first) {
      for (int i = 0; i < 3; ++i) put_next(end, one.bytes);
      context.synchronize(end.stream());
      end.sender.drain(15s);
      board().meet(context);
      return;
    }
    expect_code(Code::misuse, [&] { end.receiver.bytes(); });  // before the first wait
    for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
      const auto slot = end.receiver.wait_for(15s);
      ASSERT_TRUE(slot);
      for (int i = 0; i < 2; ++i) EXPECT_EQ(end.receiver.bytes(), put_of(epoch, one.bytes).bytes);
      end.receiver.release({});
    }
    expect_within(10s, [&] {  // over a network the credit is on its way
      try {
        end.receiver.bytes();
        return false;
      } catch (const Error& reason) {
        return reason.code() == Code::misuse;
      }
    });
    board().meet(context);
    end.receiver.close();
    expect_code(Code::misuse, [&] { end.receiver.bytes(); });
  });
}

TEST_P(Lengths, are_asked_for_by_the_receiver_alone) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    ChannelEnd end(context, one, {.lengths = context.rank() == 0});
    if (end.first) {
      put_next(end, one.bytes);
      context.synchronize(end.stream());
      EXPECT_EQ(end.sender.describe().find("length"), std::string::npos) << end.sender.describe();
    } else {
      end.receiver.wait(end.stream());
      context.synchronize(end.stream());
      expect_code(Code::misuse, [&] { end.receiver.bytes(); });
    }
    board().meet(context);
  });
}

TEST_P(Lengths, go_with_the_puts_of_plans) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    ChannelEnd end(context, one, {.lengths = true});
    Plan plan = context.plan();
    if (end.first) {
      plan.add(end.sender);
    } else {
      plan.add(end.receiver);
    }
    plan.commit(end.stream(), 15s);
    for (std::uint64_t epoch = 1; epoch <= 4; ++epoch) {
      if (end.first) {
        plan.acquire(end.stream());
        end.order.run([to = plan.slot(end.sender), epoch] { fill(bytes_of(to), {0, kTag, epoch}); });
        plan.start(end.stream());
        continue;
      }
      plan.wait(end.stream());
      end.order.run([&, slot = plan.slot(end.receiver), epoch] {
        EXPECT_EQ(end.receiver.bytes(), one.bytes);
        EXPECT_EQ(difference(bytes_of(slot), {0, kTag, epoch}), "");
      });
      plan.release(end.stream());
    }
    context.synchronize(end.stream());
    board().meet(context);
  });
}

/// With puts that no wait has taken, and several channels one after another: a put of a length that is late would be
/// found in the next.
TEST_P(Lengths, leave_nothing_behind_when_channels_close) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    for (int again = 0; again < 3; ++again) {
      ChannelEnd end(context, one, {.lengths = true});
      if (end.first) {
        for (int put = 0; put < one.depth; ++put) put_next(end, one.bytes);
        if (again == 2) end.sender.drain(15s);
        context.synchronize(end.stream());
        end.sender.close(15s);
      } else if (again != 1) {
        end.order.run([&, slot = end.receiver.wait(end.stream())] { EXPECT_EQ(end.receiver.bytes(), one.bytes); });
        context.synchronize(end.stream());
        end.receiver.close(15s);
      } else {
        end.receiver.wait_connected(15s);
        end.receiver.close(15s);
      }
      board().meet(context);
    }
  });
}

TEST_P(Lengths, are_nothing_that_kernels_can_drive) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    ChannelEnd end(context, one, {.lengths = true});
    const auto error = expect_code(Code::unsupported, [&] {
      if (end.first) {
        end.sender.on_device(end.stream());
      } else {
        end.receiver.on_device(end.stream());
      }
    });
    EXPECT_NE(std::string(error ? error->what() : "").find("length"), std::string::npos);
    if (end.first) {  // it is used as before
      put_next(end, one.bytes);
    } else {
      end.order.run([&, slot = end.receiver.wait(end.stream())] { EXPECT_EQ(end.receiver.bytes(), one.bytes); });
    }
    context.synchronize(end.stream());
    board().meet(context);
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Lengths, testing::ValuesIn(with_depths(memory_cases(), {1, 4})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Lengths,
                         testing::ValuesIn(on(wrapped_grounds(), with_depths(stream_cases(), {1, 4}))), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Lengths, full_cases([] {
                           return with_sizes(with_depths(on(all_grounds(), memory_cases()), {1, 3, 8}), {13, 100'000});
                         }),
                         CaseName());

}  // namespace
