// SPDX-License-Identifier: Apache-2.0
// Plans that are captured into graphs of a GPU's stream, and replayed; and kernels of a program's that hold channels.
#include <thread>

#include "tests/conformance/gpu_cases.hpp"
#include "tests/device/relay.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr Tag kTag = 71;

class Graphs : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Graphs);

std::vector<GpuCase> graph_cases() {
  std::vector<GpuCase> cases;
  for (const Ground& ground : gpu_grounds()) {
    if (ground.arms) continue;  // nobody would arm what a replay fires
    for (const int depth : {1, 2, 3}) {
      const std::size_t bytes = depth == 2 ? 200'000 : 13;  // copied by many blocks, and by one
      cases.push_back({ground, false, Whose::ours, Whose::ours, depth, bytes});
    }
    cases.push_back({ground, false, Whose::hosts, Whose::ours, 2, 64});
    cases.push_back({ground, false, Whose::ours, Whose::users, 2, 64});
  }
  return cases;
}

/// One rank's half of an exchange with another, by a plan, whose every step can be captured: what is put and what is
/// expected is counted when it happens.
class Exchange {
 public:
  Exchange(Context& context, const GpuCase& one, Rank other)
      : context_(context), one_(one), source_(context, one.source, one.bytes * slots()),
        target_(context, one.target, one.bytes * slots()), bytes_(context.allocate(2 * one.bytes, Space::pinned)),
        other_(other) {
    sender = context.sender(other, kTag, source_.slice(), {.depth = one.depth});
    receiver = context.receiver(other, kTag, target_.slice(), {.depth = one.depth});
    plan = context.plan();
    plan.add(sender).add(receiver);
    board().meet(context);  // a GPU gives no memory behind a parked stream
    plan.commit(stream.stream());
  }

  void put() {
    const Slice filled = bytes_.slice(0, one_.bytes);
    plan.acquire(stream.stream());
    stream.run([this, filled] { fill(bytes_of(filled), {context_.rank(), kTag, ++put_}); });
    stream.copy(plan.slot(sender).data(), filled.data(), one_.bytes);
    plan.start(stream.stream());
  }
  void take() {
    const Slice seen = bytes_.slice(one_.bytes, one_.bytes);
    plan.wait(stream.stream());
    stream.copy(seen.data(), plan.slot(receiver).data(), one_.bytes);
    stream.run([this, seen] {
      const std::string wrong = difference(bytes_of(seen), {other_, kTag, ++taken_});
      if (looks) {
        EXPECT_EQ(wrong, "");
      }
    });
    plan.release(stream.stream());
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      put();
      take();
    }
  }
  GpuGraph captured_steps(int count) {
    return {stream, [&] { steps(count); }};
  }

  /// Epochs that have come and gone.
  std::uint64_t taken() const { return taken_; }

  bool looks = true;  ///< at what it has taken; not where nothing comes any more
  GpuStream stream;
  Sender sender;
  Receiver receiver;
  Plan plan;

 private:
  std::size_t slots() const { return static_cast<std::size_t>(one_.depth); }

  Context& context_;
  GpuCase one_;
  Piece source_;
  Piece target_;
  Memory bytes_;
  Rank other_;
  std::uint64_t put_ = 0;
  std::uint64_t taken_ = 0;
};

TEST_P(Graphs, are_replayed_any_number_of_times_among_eager_steps) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const int depth = GetParam().depth;
    Exchange exchange(context, GetParam(), 1 - context.rank());
    exchange.steps(depth + 1);  // the slots need not be at their first when the capture begins
    GpuGraph once = exchange.captured_steps(depth);
    GpuGraph twice = exchange.captured_steps(2 * depth);
    int expected = depth + 1;
    const auto launch = [&](GpuGraph& graph, int steps, int times) {
      for (int i = 0; i < times; ++i) graph.launch(exchange.stream);
      expected += times * steps;
    };
    launch(once, depth, 5);
    launch(twice, 2 * depth, 3);
    exchange.steps(depth);
    expected += depth;
    launch(once, depth, 1);
    context.synchronize(exchange.stream.stream());
    launch(twice, 2 * depth, 20);
    exchange.steps(2 * depth);
    expected += 2 * depth;
    launch(once, depth, 20);
    context.synchronize(exchange.stream.stream());
    EXPECT_EQ(exchange.taken(), static_cast<std::uint64_t>(expected));
    EXPECT_EQ(exchange.sender.epoch(), static_cast<std::uint64_t>(expected));
    EXPECT_EQ(exchange.receiver.epoch(), static_cast<std::uint64_t>(expected));
    board().meet(context);
  });
}

/// What is enqueued when an end closes happens first.
TEST_P(Graphs, leave_plans_that_close_when_their_work_is_done) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const int depth = GetParam().depth;
    Exchange exchange(context, GetParam(), 1 - context.rank());
    GpuGraph graph = exchange.captured_steps(depth);
    graph.launch(exchange.stream);
    exchange.steps(depth);
    exchange.sender.close();
    exchange.receiver.close();
    EXPECT_EQ(exchange.taken(), static_cast<std::uint64_t>(2 * depth));
    exchange.looks = false;
    graph.launch(exchange.stream);  // finds nothing to be done
    exchange.stream.synchronize();
    board().meet(context);
  });
}

/// Each of several puts goes when its own credit has come.
TEST_P(Graphs, keep_the_credits_of_several_peers_apart) {
  run_peers(peers_of(GetParam(), 3), [](Context& context) {
    const GpuCase& one = GetParam();
    constexpr std::uint64_t kEach = 3;
    const std::size_t slots = static_cast<std::size_t>(one.depth);
    GpuStream stream;
    if (context.rank() != 0) {
      const Piece target(context, one.target, one.bytes * slots);
      Receiver receiver = context.receiver(0, kTag, target.slice(), {.depth = one.depth});
      board().meet(context);
      std::vector<std::byte> seen(one.bytes);
      for (std::uint64_t epoch = 1; epoch <= kEach * slots; ++epoch) {
        if (context.rank() == 2) std::this_thread::sleep_for(10ms);  // far behind the other
        const std::optional<Slice> slot = receiver.wait_for(20s);
        ASSERT_TRUE(slot);
        if (context.rank() == 2) std::this_thread::sleep_for(10ms);
        stream.copy(seen.data(), slot->data(), one.bytes);
        stream.synchronize();
        EXPECT_EQ(difference(seen, {0, kTag, epoch}), "");
        receiver.release({});
      }
      board().meet(context);
      return;
    }
    const Memory filled = context.allocate(one.bytes, Space::pinned);
    const Piece source(context, one.source, 2 * one.bytes * slots);
    std::vector<Sender> senders;
    for (const Rank peer : {1, 2}) {
      senders.push_back(context.sender(
          peer, kTag, source.slice().slice(static_cast<std::size_t>(peer - 1) * one.bytes * slots, one.bytes * slots),
          {.depth = one.depth}));
    }
    board().meet(context);
    Plan plan = context.plan();
    plan.add(senders[0]).add(senders[1]);
    plan.commit(stream.stream());
    std::uint64_t put = 0;
    GpuGraph graph{stream, [&] {
                     for (std::size_t i = 0; i < slots; ++i) {
                       plan.acquire(stream.stream());
                       stream.run([&] { fill(bytes_of(filled.all()), {0, kTag, ++put}); });
                       for (const Sender& sender : senders)
                         stream.copy(plan.slot(sender).data(), filled.data(), one.bytes);
                       plan.start(stream.stream());
                     }
                   }};
    for (std::uint64_t i = 0; i < kEach; ++i) graph.launch(stream);
    context.synchronize(stream.stream());
    for (Sender& sender : senders) sender.drain();
    board().meet(context);
  });
}

/// A graph that is under way, or launched after that, finds nothing to be done; it touches nothing of the peer.
TEST_P(Graphs, may_be_under_way_when_their_channels_close) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    Exchange exchange(context, GetParam(), 1 - context.rank());
    exchange.looks = false;
    const int depth = GetParam().depth;
    GpuGraph graph = exchange.captured_steps(depth);
    constexpr int kLaunches = 20;
    for (int i = 0; i < kLaunches; ++i) graph.launch(exchange.stream);
    board().meet(context);
    context.abort("not waited for");
    exchange.sender.close();
    exchange.receiver.close();
    for (int i = 0; i < kLaunches; ++i) graph.launch(exchange.stream);
    exchange.stream.synchronize();
    board().meet(context);
  });
}

/// The wait is replayed, the release is not.
TEST_P(Graphs, may_have_a_part_of_a_step_in_them) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const int depth = GetParam().depth;
    Exchange exchange(context, GetParam(), 1 - context.rank());
    const auto slots = static_cast<std::uint64_t>(depth);
    GpuGraph waits{exchange.stream, [&] {
                     for (int i = 0; i < depth; ++i) exchange.plan.wait(exchange.stream.stream());
                   }};
    for (std::uint64_t round = 1; round <= 3; ++round) {
      for (int i = 0; i < depth; ++i) exchange.put();
      waits.launch(exchange.stream);
      for (int i = 0; i < depth; ++i) exchange.plan.release(exchange.stream.stream());
      context.synchronize(exchange.stream.stream());
      EXPECT_EQ(exchange.receiver.epoch(), round * slots);
    }
    board().meet(context);
  });
}

TEST_P(Graphs, that_would_leave_the_slots_they_captured_are_refused) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const int depth = GetParam().depth;
    if (depth == 1) return;
    Exchange exchange(context, GetParam(), 1 - context.rank());
    const GpuGraph wrong = exchange.captured_steps(depth - 1);
    const auto error = expect_code(Code::misuse, [&] { exchange.plan.acquire(exchange.stream.stream()); });
    ASSERT_TRUE(error);
    EXPECT_NE(std::string(error->what()).find("must not be launched"), std::string::npos) << error->what();
    GpuGraph right = exchange.captured_steps(depth);
    right.launch(exchange.stream);
    context.synchronize(exchange.stream.stream());
    EXPECT_EQ(exchange.taken(), static_cast<std::uint64_t>(depth));
    board().meet(context);
  });
}

TEST_P(Graphs, that_find_other_slots_than_they_captured_say_so) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const int depth = GetParam().depth;
    if (depth == 1) return;
    Exchange exchange(context, GetParam(), 1 - context.rank());
    GpuGraph graph = exchange.captured_steps(depth);
    exchange.steps(1);
    context.synchronize(exchange.stream.stream());
    exchange.looks = false;
    board().meet(context);
    graph.launch(exchange.stream);
    const auto error = expect_code(Code::misuse, [&] { context.synchronize(exchange.stream.stream()); });
    ASSERT_TRUE(error);
    EXPECT_NE(std::string(error->what()).find("another slot"), std::string::npos) << error->what();
    board().meet(context);
  });
}

TEST_P(Graphs, that_wait_are_released_by_an_abort) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const int depth = GetParam().depth;
    Exchange exchange(context, GetParam(), 1 - context.rank());
    GpuGraph graph{exchange.stream, [&] {
                     for (int i = 0; i < depth; ++i) {
                       exchange.plan.wait(exchange.stream.stream());
                       exchange.plan.release(exchange.stream.stream());
                     }
                   }};
    graph.launch(exchange.stream);
    board().meet(context);
    if (context.rank() == 0) context.abort("enough");
    expect_code(Code::aborted, [&] { context.synchronize(exchange.stream.stream()); });
    board().meet(context);
  });
}

TEST_P(Graphs, that_wait_too_long_are_released) {
  Peers peers = peers_of(GetParam());
  peers.timeout = 200ms;
  run_peers(peers, [](Context& context) {
    Exchange exchange(context, GetParam(), 1 - context.rank());
    GpuGraph graph{exchange.stream, [&] {
                     for (int i = 0; i < GetParam().depth; ++i) exchange.plan.wait(exchange.stream.stream());
                   }};
    graph.launch(exchange.stream);
    expect_code(Code::timeout, [&] { context.synchronize(exchange.stream.stream()); });
    board().meet(context);
  });
}

TEST_P(Graphs, take_plans_only) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    GpuStream stream;
    const std::size_t bytes = one.bytes * static_cast<std::size_t>(one.depth);
    const Piece source(context, one.source, bytes);
    Sender sender = context.sender(1 - context.rank(), kTag, source.slice(), {.depth = one.depth});
    const Piece target(context, one.target, bytes);
    const Receiver receiver = context.receiver(1 - context.rank(), kTag, target.slice(), {.depth = one.depth});
    sender.wait_connected();
    board().meet(context);
    expect_code(Code::unsupported, [&] { GpuGraph(stream, [&] { sender.put(stream.stream()); }); });
    board().meet(context);
  });
}

/// A program's own kernels, which hold channels.
class GpuKernels : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuKernels);

TEST_P(GpuKernels, drive_channels) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::uint64_t kRounds = 30;
    constexpr unsigned kThreads = 128;
    const GpuCase& one = GetParam();
    const Rank other = 1 - context.rank();
    const std::size_t bytes = one.bytes * static_cast<std::size_t>(one.depth);
    GpuStream stream;
    const GpuKernel relay(RelayArgs::kKernel);
    const Piece source(context, one.source, bytes);
    const Piece target(context, one.target, bytes);
    const Memory words = context.allocate(2 * sizeof(std::uint64_t), Space::pinned);
    const Slice both = words.all();
    const std::span<std::uint64_t> results = both.as<std::uint64_t>();
    Sender sender = context.sender(other, kTag, source.slice(), {.depth = one.depth});
    Receiver receiver = context.receiver(other, kTag, target.slice(), {.depth = one.depth});
    board().meet(context);  // a GPU gives no memory behind a parked stream
    const DeviceSender to = sender.on_device(stream.stream());
    const DeviceReceiver from = receiver.on_device(stream.stream());
    board().meet(context);
    relay.launch(stream, RelayArgs{to, from, kRounds, &results[0], &results[1]}, kThreads);
    relay.launch(stream, RelayArgs{to, from, kRounds, &results[0], &results[1]}, kThreads);
    context.synchronize(stream.stream());
    EXPECT_EQ(results[0], 0U);
    EXPECT_EQ(results[1], 0U);
    EXPECT_EQ(sender.epoch(), 2 * kRounds);
    EXPECT_EQ(receiver.epoch(), 2 * kRounds);
    board().meet(context);
  });
}

INSTANTIATE_TEST_SUITE_P(Quick, GpuKernels, testing::ValuesIn(graph_cases()), GpuCaseName());
INSTANTIATE_TEST_SUITE_P(Quick, Graphs, testing::ValuesIn(graph_cases()), GpuCaseName());

}  // namespace
