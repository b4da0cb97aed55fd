// SPDX-License-Identifier: Apache-2.0
// A wrong call ends in one clear error that names the rank, peer and tag, and breaks nothing else.
#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class Misuse : public testing::TestWithParam<Case> {};

/// Streams of a GPU on a machine without one.
class MisuseWithoutGpu : public Misuse {};

/// Streams of a GPU on a machine with a driver.
class MisuseOfDrivers : public Misuse {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MisuseOfDrivers);

/// Says which rank, peer and tag, as values and in its text.
void expect_names(const std::optional<Error>& error, Rank rank, Rank peer) {
  if (!error) return;
  EXPECT_EQ(error->rank(), rank);
  EXPECT_EQ(error->peer(), peer);
  EXPECT_EQ(error->tag(), kTag);
  const std::string what = error->what();
  EXPECT_NE(what.find("rank " + std::to_string(rank)), std::string::npos) << what;
  EXPECT_NE(what.find(std::to_string(peer)), std::string::npos) << what;
  EXPECT_NE(what.find(std::to_string(kTag)), std::string::npos) << what;
  EXPECT_EQ(what.find('\n'), std::string::npos) << what;  // one line
}

TEST_P(Misuse, a_release_without_a_wait) {
  run_peers(GetParam().peers(), [](Context& context) {
    ChannelEnd end(context, GetParam());
    if (end.first) {
      for (int i = 0; i < 2; ++i) end.sender.put(end.stream());
      context.synchronize(end.stream());
    } else {
      const auto first = expect_code(Code::misuse, [&] { end.receiver.release(end.stream()); });
      expect_names(first, 1, 0);
      EXPECT_EQ(first ? first->epoch() : 0, 1U);
      end.receiver.wait(end.stream());
      end.receiver.release(end.stream());
      const auto second = expect_code(Code::misuse, [&] { end.receiver.release(end.stream()); });
      EXPECT_EQ(second ? second->epoch() : 0, 2U);
      end.receiver.wait(end.stream());  // it changed nothing: the channel goes on
      context.synchronize(end.stream());
    }
  });
}

TEST_P(Misuse, a_duplicate_while_the_first_is_open) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Buffer buffer(context, GetParam());
    const Rank other = 1 - context.rank();
    {
      const Sender sender = context.sender(other, kTag, buffer.all());
      expect_names(expect_code(Code::misuse, [&] { context.sender(other, kTag, buffer.all()); }), context.rank(),
                   other);
      const Receiver receiver = context.receiver(other, kTag, buffer.all());  // the other direction is no duplicate
      expect_names(expect_code(Code::misuse, [&] { context.receiver(other, kTag, buffer.all()); }), context.rank(),
                   other);
      const Sender elsewhere = context.scope("elsewhere").sender(other, kTag, buffer.all());
      const Sender itself = context.sender(context.rank(), kTag, buffer.all());  // nor another peer
    }
    const Sender again = context.sender(other, kTag, buffer.all());  // the first is closed
    const Receiver back = context.receiver(other, kTag, buffer.all());
  });
}

TEST_P(Misuse, slots_of_different_sizes_are_a_mismatch_at_both_ends) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Buffer buffer(context, one, 64);
    const Rank other = 1 - context.rank();
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all().slice(0, 16), {.depth = 2});  // 8 bytes a slot
      expect_names(expect_code(Code::mismatch, [&] { sender.wait_connected(); }), 0, other);
      expect_code(Code::mismatch, [&] { sender.put(order.stream()); });
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all().slice(0, 16));  // 16 bytes a slot
      expect_names(expect_code(Code::mismatch, [&] { receiver.wait_connected(); }), 1, other);
      const auto wait = [&] {
        receiver.wait(order.stream());
        context.synchronize(order.stream());
      };
      expect_code(Code::mismatch, wait);
    }
    board().meet(context);
    EXPECT_EQ(unlike_poison(buffer.bytes()), "");
  });
}

/// Ends that do not both say what a slot holds connect.
TEST_P(Misuse, slots_of_different_contents_are_a_mismatch_at_both_ends) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Buffer buffer(context, GetParam());
    const Rank other = 1 - context.rank();
    const bool sends = context.rank() == 0;
    const auto connect = [&](Tag tag, const std::string& at_sender, const std::string& at_receiver) {
      if (sends) {
        context.sender(other, tag, buffer.all(), {.contents = at_sender}).wait_connected();
      } else {
        context.receiver(other, tag, buffer.all(), {.contents = at_receiver}).wait_connected();
      }
    };
    connect(kTag, "3 doubles", "3 doubles");
    connect(kTag, "3 doubles", "");
    connect(kTag, "", "4 floats");
    const std::string before(5000, 'x');
    const auto error =
        expect_code(Code::mismatch, [&] { connect(kTag, before + " 3 doubles, 1 int", before + " 3 floats, 1 int"); });
    expect_names(error, context.rank(), other);
    const std::string text = error ? error->what() : "";
    EXPECT_NE(text.find(sends ? "\"doubles, 1 int\" a slot here, \"floats, 1 int\" at rank 1"
                              : "\"floats, 1 int\" a slot here, \"doubles, 1 int\" at rank 0"),
              std::string::npos)
        << text;
    const std::string longer(100'000, 'x');  // than a packet: of the rest a hash is compared
    connect(kTag, longer, longer);
    expect_code(Code::mismatch, [&] { connect(kTag, longer + 'a', longer + 'b'); });
    board().meet(context);
  });
}

TEST_P(Misuse, what_can_never_work_is_refused_at_opening) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Buffer buffer(context, GetParam(), 64);
    const auto open_both = [&](Rank peer, std::size_t bytes, int depth) {
      const Slice slice = buffer.all().slice(0, bytes);
      expect_code(Code::bad_argument, [&] { context.sender(peer, kTag, slice, {.depth = depth}); });
      expect_code(Code::bad_argument, [&] { context.receiver(peer, kTag, slice, {.depth = depth}); });
    };
    open_both(2, 64, 1);  // there are two ranks
    open_both(-1, 64, 1);
    open_both(1, 64, 3);  // 64 bytes are not 3 slots
    open_both(1, 64, 0);
    open_both(1, 64, -2);
    expect_names(expect_code(Code::bad_argument, [&] { context.sender(7, kTag, buffer.all()); }), context.rank(), 7);
    expect_code(Code::bad_argument, [&] { context.scope("s").sender(2, kTag, buffer.all()); });
  });
}

TEST_P(Misuse, a_channel_keeps_the_kind_of_its_first_stream) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    ChannelEnd end(context, one);
    HostStream host;
    const Stream other_kind = one.host ? Stream::program_order() : Stream::host(host);
    if (end.first) {
      end.sender.put(end.stream());
      expect_names(expect_code(Code::misuse, [&] { end.sender.put(other_kind); }), 0, 1);
      expect_code(Code::misuse, [&] { end.sender.acquire(other_kind); });
      end.sender.put(end.stream());
      context.synchronize(end.stream());
    } else {
      end.receiver.wait(end.stream());
      expect_names(expect_code(Code::misuse, [&] { end.receiver.release(other_kind); }), 1, 0);
      end.receiver.release(end.stream());
      expect_code(Code::misuse, [&] { end.receiver.wait(other_kind); });
      end.receiver.wait(end.stream());
      context.synchronize(end.stream());
    }
  });
}

TEST_P(MisuseWithoutGpu, a_gpu_stream_on_a_machine_without_a_gpu_is_unsupported) {
  if (why_no_gpu().empty()) return skipped_here("streams on a machine without a GPU: this one has one");
  run_peers(GetParam().peers(), [](Context& context) {
    const Buffer source(context, GetParam());
    const Buffer target(context, GetParam());
    Sender sender = context.sender(1 - context.rank(), kTag, source.all());
    const Receiver receiver = context.receiver(1 - context.rank(), kTag, target.all());
    expect_code(Code::unsupported,
                [&] { sender.put(Stream::cuda(nullptr)); });  // the default stream is not program order
    expect_code(Code::unsupported, [&] { sender.put(Stream::hip(nullptr)); });
    expect_code(Code::unsupported, [&] { context.synchronize(Stream::cuda(nullptr)); });
    sender.put({});
    board().meet(context);
  });
}

/// An unusable driver: everything else works, and a call with one of its streams reports the reason.
TEST_P(MisuseOfDrivers, a_stream_of_a_driver_that_cannot_be_used_is_unsupported) {
  if (!gpu_is_emulated()) return skipped_here("a driver that cannot be used: this one can");
  const std::pair<const char*, const char*> settings[] = {
      {"EMUCUDA_DEVICES=0", "no NVIDIA GPU is here"},
      {"EMUCUDA_VERSION=11080", "the CUDA driver is older than version 12.0"},
      {"EMUCUDA_INIT=803", "cuInit failed with error 803"}};  // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
  for (const auto& [setting, why_not] : settings) {
    Peers peers = GetParam().peers();
    peers.environment = {setting};
    run_peers(peers, [why_not = why_not](Context& context) {
      Case one = GetParam();
      one.cuda = false;
      BothEnds end(context, one);
      const auto error = expect_code(Code::unsupported, [&] { end.sender.put(Stream::cuda(nullptr)); });
      ASSERT_TRUE(error);
      EXPECT_NE(std::string(error->what()).find(std::string("CUDA streams: ") + why_not), std::string::npos)
          << error->what();
      EXPECT_NE(context.allocate(64, Space::device).data(), nullptr);  // the host's
      fill(end.source.bytes(), {context.rank(), kTag, 1});
      end.sender.put(end.stream());
      end.order.run([slot = end.receiver.wait(end.stream()), other = end.other] {
        expect_and_poison(slot, {other, kTag, 1});
      });
      end.receiver.release(end.stream());
      context.synchronize(end.stream());
      board().meet(context);
    });
  }
}

TEST_P(Misuse, empty_handles) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Buffer buffer(context, GetParam());
    Sender sender;
    Receiver receiver;
    Plan plan;
    expect_code(Code::misuse, [&] { sender.put({}); });
    expect_code(Code::misuse, [&] { sender.put({}, 0, 0); });
    expect_code(Code::misuse, [&] { sender.acquire({}); });
    expect_code(Code::misuse, [&] { sender.drain(); });
    expect_code(Code::misuse, [&] { sender.wait_connected(); });
    expect_code(Code::misuse, [&] { sender.close(); });
    expect_code(Code::misuse, [&] { receiver.wait({}); });
    expect_code(Code::misuse, [&] { receiver.release({}); });
    expect_code(Code::misuse, [&] { receiver.test(); });
    expect_code(Code::misuse, [&] { receiver.wait_for(1ms); });
    expect_code(Code::misuse, [&] { (void)receiver.connected(); });
    expect_code(Code::misuse, [&] { (void)receiver.describe(); });
    expect_code(Code::misuse, [&] { plan.start({}); });
    expect_code(Code::misuse, [&] { plan.commit({}); });
    expect_code(Code::misuse, [&] { plan.add(sender); });
    Context none;
    Scope nowhere;
    EXPECT_EQ(none.rank(), -1);
    EXPECT_EQ(none.size(), 0);
    expect_code(Code::misuse, [&] { none.allocate(8); });
    expect_code(Code::misuse, [&] { none.scope("x"); });
    expect_code(Code::misuse, [&] { none.sub({0}); });
    expect_code(Code::misuse, [&] { none.check(); });
    expect_code(Code::misuse, [&] { nowhere.sender(0, kTag, buffer.all()); });
    const std::string endless(10'000, 'x');
    expect_code(Code::bad_argument, [&] { context.sender(0, kTag, buffer.all(), {.name = endless}); });
    expect_code(Code::bad_argument, [&] { context.scope(endless); });
    Sender full = context.sender(1 - context.rank(), kTag, buffer.all());
    sender = std::move(full);
    expect_code(Code::misuse, [&] { full.put({}); });  // NOLINT(bugprone-use-after-move): what is moved from is empty
    sender.close();
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Misuse, testing::ValuesIn(stream_cases()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Misuse, full_cases([] { return on(all_grounds(), memory_cases()); }), CaseName());

std::vector<Case> with_cuda(bool cuda, std::vector<Case> cases) {
  std::erase_if(cases, [&](const Case& one) { return one.cuda != cuda; });
  return cases;
}
INSTANTIATE_IN_ITS_RANKS(Quick, MisuseWithoutGpu, testing::ValuesIn(with_cuda(false, stream_cases())), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, MisuseWithoutGpu,
                         full_cases([] { return with_cuda(false, on(all_grounds(), memory_cases())); }), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, MisuseOfDrivers, testing::ValuesIn(with_cuda(true, stream_cases())), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, MisuseOfDrivers,
                         full_cases([] { return with_cuda(true, on(all_grounds(), memory_cases())); }), CaseName());

}  // namespace
