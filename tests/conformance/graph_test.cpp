// SPDX-License-Identifier: Apache-2.0
// Plans that are captured into graphs of a GPU's stream, and replayed.
#include "tests/conformance/gpu_cases.hpp"

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

INSTANTIATE_TEST_SUITE_P(Quick, Graphs, testing::ValuesIn(graph_cases()), GpuCaseName());

}  // namespace
