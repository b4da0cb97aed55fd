// SPDX-License-Identifier: Apache-2.0
// Memory, regions and slices: what they refuse, and how long they live.
#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class Memories : public testing::TestWithParam<Case> {};

Peers alone(const Case& one) {
  Case changed = one;
  changed.ranks = 1;
  return changed.peers();
}

TEST_P(Memories, are_zeroed_and_aligned) {
  run_peers(alone(GetParam()), [](Context& context) {
    for (const Space space : {Space::host, Space::pinned, Space::device}) {  // all the same without a GPU
      for (const std::size_t bytes : {1U, 64U, 4096U, 1'000'000U}) {
        const Memory memory = context.allocate(bytes, space);
        EXPECT_EQ(memory.bytes(), bytes);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % (bytes >= 4096 ? 4096 : 64), 0U);
        for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(memory.data()[i], std::byte{0});
        poison({memory.data(), bytes});  // so that memory that is given out again would show it
      }
    }
  });
}

TEST_P(Memories, refuse_what_cannot_be) {
  run_peers(alone(GetParam()), [](Context& context) {
    expect_code(Code::bad_argument, [&] { context.allocate(0); });
    expect_code(Code::bad_argument, [&] { context.allocate(64, Space::host, 99); });
    expect_code(Code::bad_argument, [&] { context.region(nullptr, 64); });
    const auto error = expect_code(Code::out_of_resources, [&] { context.allocate(std::size_t{1} << 60); });
    if (error) {
      EXPECT_EQ(std::string(error->what()).find('\n'), std::string::npos) << error->what();
    }
    EXPECT_NE(context.allocate(64).data(), nullptr);  // and go on
  });
}

TEST_P(Memories, a_slice_outside_its_region_is_refused) {
  run_peers(alone(GetParam()), [](Context& context) {
    const Memory memory = context.allocate(100);
    std::array<std::byte, 100> users{};
    const Region region = context.region(users.data(), users.size());
    const Slice slice = memory.slice(20, 50);
    constexpr auto kHuge = std::size_t(-1);
    const auto refuses = [](const auto& whole, std::size_t bytes) {
      expect_code(Code::bad_argument, [&] { (void)whole.slice(0, bytes + 1); });
      expect_code(Code::bad_argument, [&] { (void)whole.slice(bytes + 1, 0); });
      expect_code(Code::bad_argument, [&] { (void)whole.slice(bytes, 1); });
      expect_code(Code::bad_argument, [&] { (void)whole.slice(1, kHuge); });
      expect_code(Code::bad_argument, [&] { (void)whole.slice(kHuge, 2); });
      EXPECT_EQ(whole.slice(0, bytes).bytes(), bytes);
      EXPECT_EQ(whole.slice(bytes, 0).bytes(), 0U);
    };
    refuses(memory, 100);
    refuses(region, 100);
    refuses(slice, 50);
    EXPECT_EQ(slice.slice(10, 5).data(), memory.data() + 30);
    EXPECT_EQ(region.all().data(), users.data());
    EXPECT_EQ(Slice().bytes(), 0U);
    expect_code(Code::bad_argument, [&] { (void)Region().slice(0, 1); });
  });
}

TEST_P(Memories, a_slice_reads_as_elements) {
  run_peers(alone(GetParam()), [](Context& context) {
    const Memory memory = context.allocate(20);
    const Slice slice = memory.slice(0, 20);
    EXPECT_EQ(slice.as<std::uint64_t>().size(), 2U);  // a rest smaller than one is left out
    slice.as<std::uint32_t>()[4] = 7;
    EXPECT_EQ(memory.data()[16], std::byte{7});
  });
}

TEST_P(Memories, live_as_long_as_their_last_slice_or_channel) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Slice kept;
    std::optional<Sender> sender;
    std::optional<Receiver> receiver;
    {
      const Memory memory = context.allocate(2 * one.bytes);
      kept = memory.slice(0, one.bytes).slice(0, one.bytes);
      if (context.rank() == 0) sender = context.sender(1, kTag, memory.slice(one.bytes, one.bytes));
      if (context.rank() == 1) receiver = context.receiver(0, kTag, memory.slice(one.bytes, one.bytes));
    }
    fill(bytes_of(kept), {context.rank(), kTag, 9});
    std::vector<Memory> others;  // which would get the memory if it were free
    for (int i = 0; i < 10; ++i) {
      others.push_back(context.allocate(2 * one.bytes));
      poison({others.back().data(), others.back().bytes()});
    }
    if (sender) {
      fill(bytes_of(sender->acquire({})), {0, kTag, 1});
      sender->put({});
    } else {
      EXPECT_EQ(difference(bytes_of(receiver->wait({})), {0, kTag, 1}), "");
    }
    EXPECT_EQ(difference(bytes_of(kept), {context.rank(), kTag, 9}), "");
    for (const Memory& other : others) EXPECT_EQ(unlike_poison({other.data(), other.bytes()}), "");
  });
}

/// Without a GPU all memory is the host's, and a channel reports that where a program wants another kind.
TEST_P(Memories, of_a_kind_that_is_not_here_are_the_hosts) {
  run_peers(alone(GetParam()), [](Context& context) {
    const auto told = [&](Space space) {
      const Memory memory = context.allocate(2 * 64, space);
      Sender sender = context.sender(0, kTag, memory.slice(0, 64));
      const Receiver receiver = context.receiver(0, kTag, memory.slice(64, 64));
      sender.wait_connected();
      return sender.describe().find("host memory") != std::string::npos;
    };
    EXPECT_TRUE(told(Space::device));
    EXPECT_TRUE(told(Space::pinned));
    EXPECT_FALSE(told(Space::host));
  });
}

/// A slot is lent, but a channel that is opened on one owns its memory.
TEST_P(Memories, a_channel_on_a_slot_of_another_keeps_the_memory) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Rank other = 1 - context.rank();
    Sender forwards;
    {
      const Memory memory = context.allocate(2 * one.bytes);
      Sender sender = context.sender(other, kTag, memory.slice(0, one.bytes));
      Receiver receiver = context.receiver(other, kTag, memory.slice(one.bytes, one.bytes));
      fill(bytes_of(sender.acquire({})), {context.rank(), kTag, 1});
      sender.put({});
      forwards = context.sender(other, kTag + 1, receiver.wait({}));
      receiver.release({});
    }
    const Buffer buffer(context, one);
    Receiver receiver = context.receiver(other, kTag + 1, buffer.all());
    const Memory in_between = context.allocate(2 * one.bytes);  // which would get the memory if it were free
    poison({in_between.data(), in_between.bytes()});
    forwards.put({});
    EXPECT_EQ(difference(bytes_of(receiver.wait({})), {context.rank(), kTag, 1}), "");  // there and back
  });
}

/// Channels share ownership of the context: the handle may go first.
TEST_P(Memories, a_channel_outlives_the_handle_of_its_context) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    std::optional<Context> both = context.sub({1, 0});
    std::optional<Sender> sender;
    std::optional<Receiver> receiver;
    if (both->rank() == 0) sender = both->sender(1, kTag, buffer.all());
    if (both->rank() == 1) receiver = both->receiver(0, kTag, buffer.all());
    both.reset();
    if (sender) {
      fill(buffer.bytes(), {0, kTag, 1});
      sender->put({});
    } else {
      EXPECT_EQ(difference(bytes_of(receiver->wait({})), {0, kTag, 1}), "");
    }
  });
}

/// Several channels on one memory, and a channel whose two ends are the halves of one.
TEST_P(Memories, one_memory_may_serve_many_channels) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    constexpr std::size_t kChannels = 40;
    const Rank other = 1 - context.rank();
    const Buffer buffer(context, one, 2 * kChannels * one.bytes);
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
    for (std::size_t i = 0; i < kChannels; ++i) {
      const Tag tag = kTag + static_cast<Tag>(i);
      senders.push_back(context.sender(other, tag, buffer.all().slice(2 * i * one.bytes, one.bytes)));
      receivers.push_back(context.receiver(other, tag, buffer.all().slice((2 * i + 1) * one.bytes, one.bytes)));
    }
    for (Sender& sender : senders) {
      fill(bytes_of(sender.acquire({})), {context.rank(), sender.tag(), 1});
      sender.put({});
    }
    for (Receiver& receiver : receivers)
      EXPECT_EQ(difference(bytes_of(receiver.wait({})), {other, receiver.tag(), 1}), "");
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Memories, testing::ValuesIn(inline_only(memory_cases())), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Memories, full_cases([] {
                           return inline_only(with_sizes(on(all_grounds(), memory_cases()), {1, 100'000}));
                         }),
                         CaseName());

}  // namespace
