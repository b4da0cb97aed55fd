// SPDX-License-Identifier: Apache-2.0
// Plans that are captured into graphs of a GPU's stream, and replayed; and kernels of a program's that hold channels.
#include <array>
#include <memory>
#include <thread>

#include "tests/conformance/exchange.hpp"
#include "tests/conformance/released.hpp"
#include "tests/device/relay.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class Graphs : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Graphs);

/// Graphs on channels with several slots.
class GraphsOfSlots : public Graphs {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GraphsOfSlots);

/// A program that frees its own behind a parked stream is stuck.
class GraphsInOurMemory : public Graphs {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GraphsInOurMemory);

std::vector<GpuCase> graph_cases() {
  std::vector<GpuCase> cases;
  for (const Ground& ground : gpu_grounds()) {
    if (ground.arms && ground.network) {  // no network reads the emulated GPU's memory
      for (const int depth : {1, 2, 3}) cases.push_back({ground, false, Whose::hosts, Whose::hosts, depth, 64});
    }
    for (const int depth : {1, 2, 3}) {
      const std::size_t bytes = depth == 2 ? 200'000 : 13;  // copied by many blocks, and by one
      cases.push_back({ground, false, Whose::ours, Whose::ours, depth, bytes});
    }
    cases.push_back({ground, false, Whose::hosts, Whose::ours, 2, 64});
    cases.push_back({ground, false, Whose::ours, Whose::users, 2, 64});
  }
  return cases;
}

/// A NIC fires its puts, which are armed ahead.
bool is_armed(const GpuCase& one) {
  const bool reached = one.source == Whose::hosts && one.target == Whose::hosts;
  return one.ground.arms && (!one.ground.network || reached);
}

void replay_among_eager_steps(Context& context, const GpuCase& one) {
  const int depth = one.depth;
  Exchange exchange(context, one, 1 - context.rank());
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
}

TEST_P(Graphs, are_replayed_any_number_of_times_among_eager_steps) {
  run_peers(peers_of(GetParam()), [](Context& context) { replay_among_eager_steps(context, GetParam()); });
}

/// HIP's part maps what a peer has on its GPU, and lets no kernel of this one use it.
bool skips_hip(const Context& context) {
  const bool skips = GpuStream().stream().kind() == Stream::Kind::hip;
  if (skips && context.rank() == 0) skipped_here("kernels that use memory of the other GPU, with HIP");
  return skips;
}

/// Ranks whose streams are on different GPUs.
class GraphsOfGpuPairs : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GraphsOfGpuPairs);

TEST_P(GraphsOfGpuPairs, are_replayed_any_number_of_times_among_eager_steps) {
  run_on_two_gpus(GetParam(), [](Context& context) {
    if (!skips_hip(context)) replay_among_eager_steps(context, GetParam());
  });
}

/// Work that is enqueued when an end closes happens first.
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

/// Each of several puts fires when its own credit has arrived.
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

/// Opens, captures, replays and closes, where the NIC has entries for one round only: what was armed ahead and never
/// rung for gives back what it took.
void expect_entries_back(const GpuCase& one, int rounds) {
  Peers peers = peers_of(one);
  constexpr int kCredits = 4;  // epochs that may be armed, as those of a put are by its slots
  peers.environment = {"SLUICE_TRIGGER_ENTRIES=" + std::to_string(one.ground.network ? one.depth + kCredits : 2)};
  peers.limit += rounds * (one.ground.network ? 1000ms : 50ms);
  run_peers(peers, [&](Context& context) {
    const auto stream = std::make_shared<GpuStream>();  // many streams would share the queues of the device
    for (int round = 0; round < rounds; ++round) {
      Exchange exchange(context, one, 1 - context.rank(), stream);
      if (is_armed(one)) {
        ASSERT_TRUE(exchange.sender.describe().ends_with("fired by the NIC")) << exchange.sender.describe();
      }
      GpuGraph graph = exchange.captured_steps(one.depth);
      for (int i = 0; i <= round % 3; ++i) graph.launch(exchange.stream);
      context.synchronize(exchange.stream.stream());
      EXPECT_EQ(exchange.taken(), static_cast<std::uint64_t>((1 + round % 3) * one.depth));
      if (round % 2 == 0) exchange.sender.close();
      exchange.receiver.close();
      board().meet(context);
    }
  });
}

TEST_P(Graphs, leave_nothing_armed_when_their_channels_close) { expect_entries_back(GetParam(), 10); }

class LongGraphs : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LongGraphs);

TEST_P(LongGraphs, leave_nothing_armed_when_their_channels_close) {
  expect_entries_back(GetParam(), GetParam().ground.network ? 200 : 1000);
}

/// Armed leftovers fire only once they can no longer write to the receiver, which need not close for that.
TEST_P(Graphs, whose_sender_closes_write_to_no_slot_of_a_receiver_that_stays_open) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    const auto slots = static_cast<std::uint64_t>(one.depth);
    GpuStream stream;
    const Piece piece(context, context.rank() == 0 ? one.source : one.target, one.bytes * slots);
    const Memory memory = context.allocate(one.bytes, Space::pinned);
    const Slice bytes = memory.all();
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, piece.slice(), {.depth = one.depth});
      board().meet(context);
      Plan plan = context.plan();
      plan.add(sender);
      plan.commit(stream.stream());
      std::uint64_t put = 0;
      GpuGraph graph{stream, [&] {
                       for (std::uint64_t i = 0; i < slots; ++i) {
                         stream.run([&] { fill(bytes_of(bytes), {0, kTag, ++put}); });
                         stream.copy(plan.slot(sender).data(), bytes.data(), one.bytes);
                         plan.start(stream.stream());
                       }
                     }};
      graph.launch(stream);
      context.synchronize(stream.stream());
      sender.drain();
      fill(bytes_of(bytes), {0, kTag, 77});  // what the next puts would move
      for (std::uint64_t slot = 0; slot < slots; ++slot)
        gpu_copy(piece.slice().data() + slot * one.bytes, bytes.data(), one.bytes);
      board().meet(context);
      sender.close();
      board().meet(context);
      board().meet(context);
      return;
    }
    Receiver receiver = context.receiver(0, kTag, piece.slice(), {.depth = one.depth});
    board().meet(context);
    std::vector<Slice> taken;
    for (std::uint64_t epoch = 1; epoch <= slots; ++epoch) {
      const std::optional<Slice> slot = receiver.wait_for(20s);
      ASSERT_TRUE(slot);
      taken.push_back(*slot);
    }
    board().meet(context);
    board().meet(context);  // the sender is closed
    for (std::uint64_t epoch = 1; epoch <= slots; ++epoch) {
      gpu_copy(bytes.data(), taken[epoch - 1].data(), one.bytes);
      EXPECT_EQ(difference(bytes_of(bytes), {0, kTag, epoch}), "");
    }
    EXPECT_FALSE(receiver.wait_for(20s));
    EXPECT_TRUE(receiver.closed());
    board().meet(context);
  });
}

/// A graph that is under way, or launched after that, finds nothing to be done; it touches nothing of the peer.
TEST_P(Graphs, may_be_under_way_when_their_channels_close) {
  run_peers(with_untold(peers_of(GetParam())), [](Context& context) {
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

/// Work that was launched before finds nothing to do in its turn, and does not touch memory that others use by then.
TEST_P(GraphsInOurMemory, may_be_behind_a_parked_stream_when_their_channels_and_memory_go) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    GpuStream parked;
    GpuStream other;
    const Piece slots(context, Whose::ours, 2 * one.bytes);
    Receiver gate = context.receiver(1 - context.rank(), kTag + 1, slots.slice().slice(0, one.bytes));
    Sender opener = context.sender(1 - context.rank(), kTag + 1, slots.slice().slice(one.bytes, one.bytes));
    auto exchange = std::make_unique<Exchange>(context, one, 1 - context.rank());
    GpuGraph graph{exchange->stream, [&] {
                     const Stream stream = exchange->stream.stream();
                     for (int i = 0; i < one.depth; ++i) {
                       exchange->plan.acquire(stream);
                       exchange->plan.start(stream);
                       exchange->plan.wait(stream);
                       exchange->plan.release(stream);
                     }
                   }};
    gate.wait(parked.stream());
    for (int i = 0; i < 3; ++i) graph.launch(parked);
    exchange->sender.close();
    exchange->receiver.close();
    exchange.reset();
    const std::size_t bytes = one.bytes * static_cast<std::size_t>(one.depth);
    const std::array<Piece, 2> next{Piece(context, Whose::ours, bytes), Piece(context, Whose::ours, bytes)};
    const auto stamp = [&](std::size_t i) { return Stamp{context.rank(), kTag + static_cast<Tag>(i), 1}; };
    const Memory pinned = context.allocate(bytes, Space::pinned);
    const std::span<std::byte> seen = bytes_of(pinned.all());
    for (std::size_t i = 0; i < next.size(); ++i) {
      fill(seen, stamp(i));
      other.copy(next[i].slice().data(), seen.data(), bytes);
      other.synchronize();
    }
    board().meet(context);
    opener.put(other.stream());
    context.synchronize(parked.stream());
    context.synchronize(other.stream());
    board().meet(context);
    for (std::size_t i = 0; i < next.size(); ++i) {
      other.copy(seen.data(), next[i].slice().data(), bytes);
      other.synchronize();
      EXPECT_EQ(difference(seen, stamp(i)), "");
    }
    board().meet(context);
  });
}

/// A call that a capture does not allow makes it invalid. There is no graph then, and as far as the plan is concerned
/// there was none.
TEST_P(Graphs, that_become_invalid_leave_the_plan_as_it_was) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const int depth = GetParam().depth;
    Exchange exchange(context, GetParam(), 1 - context.rank());
    const auto make_invalid = [&] { EXPECT_THROW(exchange.stream.synchronize(), std::runtime_error); };
    const auto capture = [&](const std::function<void()>& work) {
      EXPECT_THROW(GpuGraph(exchange.stream, work), std::runtime_error);
    };
    capture([&] {
      exchange.put();
      make_invalid();
      const auto error = expect_code(Code::misuse, [&] { exchange.plan.start(exchange.stream.stream()); });
      ASSERT_TRUE(error);
      EXPECT_NE(std::string(error->what()).find("invalid already"), std::string::npos) << error->what();
    });
    exchange.steps(depth);
    capture([&] {  // without the plan's knowledge
      exchange.steps(depth);
      make_invalid();
    });
    exchange.steps(1);
    GpuGraph right = exchange.captured_steps(depth);
    right.launch(exchange.stream);
    right.launch(exchange.stream);
    context.synchronize(exchange.stream.stream());
    EXPECT_EQ(exchange.taken(), static_cast<std::uint64_t>(3 * depth + 1));
    EXPECT_EQ(exchange.sender.epoch(), exchange.taken());
    board().meet(context);
  });
}

TEST_P(Graphs, that_are_captured_are_not_waited_for) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const int depth = GetParam().depth;
    Exchange exchange(context, GetParam(), 1 - context.rank());
    const auto expect_misuse = [&] {
      for (const Timeout timeout : {Timeout(20ms), kForever})
        expect_code(Code::misuse, [&] { context.synchronize(exchange.stream.stream(), timeout); });
    };
    GpuGraph graph(exchange.stream, [&] {
      exchange.steps(depth);
      expect_misuse();
    });
    for (int i = 0; i < 2; ++i) graph.launch(exchange.stream);
    context.synchronize(exchange.stream.stream());
    EXPECT_EQ(exchange.taken(), static_cast<std::uint64_t>(2 * depth));
    const auto behind_an_invalid_one = [&] {
      EXPECT_THROW(exchange.stream.synchronize(), std::runtime_error);
      expect_misuse();
    };
    EXPECT_THROW(GpuGraph(exchange.stream, behind_an_invalid_one), std::runtime_error);
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

TEST_P(GraphsOfSlots, that_would_leave_the_slots_they_captured_are_refused) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const int depth = GetParam().depth;
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

TEST_P(GraphsOfSlots, that_find_other_slots_than_they_captured_say_so) {
  run_peers(with_untold(peers_of(GetParam())), [](Context& context) {
    const int depth = GetParam().depth;
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
    expect_released([&] { expect_code(Code::aborted, [&] { context.synchronize(exchange.stream.stream()); }); });
    board().meet(context);
  });
}

/// The driver refuses a kernel of a start that no graph replays: the first, or one that others of it came before.
TEST_P(Graphs, leave_plans_that_close_when_a_kernel_is_refused) {
  if (!may_refuse_operations()) return;
  run_peers(peers_of(GetParam()), [](Context& context) {
    const unsigned kernels = GetParam().bytes > 64U * 1024 ? 3 : 1;
    for (unsigned taken = 0; taken < kernels; ++taken) {
      Exchange exchange(context, GetParam(), 1 - context.rank());
      const GpuGraph graph = exchange.captured_steps(GetParam().depth);
      exchange.steps(1);
      context.synchronize(exchange.stream.stream());
      board().meet(context);
      if (context.rank() == 0) {
        {
          const Refusals refusals(taken, 1);
          exchange.plan.start(exchange.stream.stream());
        }
        EXPECT_TRUE(has_failed([&] { context.synchronize(exchange.stream.stream()); }) || taken != 0);
      }
      board().meet(context);
      exchange.sender.close(5s);
      exchange.receiver.close(5s);
      while (has_failed([&] { context.check(); })) {  // of each end
      }
      board().meet(context);
    }
  });
}

TEST_P(Graphs, that_wait_too_long_are_released) {
  static constexpr auto kTimeout = 200ms;
  Peers peers = peers_of(GetParam());
  peers.timeout = kTimeout;
  run_peers(with_untold(peers), [](Context& context) {
    Exchange exchange(context, GetParam(), 1 - context.rank());
    GpuGraph graph{exchange.stream, [&] {
                     for (int i = 0; i < GetParam().depth; ++i) exchange.plan.wait(exchange.stream.stream());
                   }};
    graph.launch(exchange.stream);
    expect_released([&] { expect_code(Code::timeout, [&] { context.synchronize(exchange.stream.stream()); }); },
                    kTimeout);
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
    const auto after_the_end = [&] {
      EXPECT_THROW(stream.synchronize(), std::runtime_error);  // the capture is invalid from then on
      expect_code(Code::misuse, [&] { sender.put(stream.stream()); });
    };
    EXPECT_THROW(GpuGraph(stream, after_the_end), std::runtime_error);
    board().meet(context);
  });
}

/// A program's own kernels, which hold channels.
class GpuKernels : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuKernels);

/// Which wait after one epoch.
class GpuKernelsOfOneSlot : public GpuKernels {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuKernelsOfOneSlot);

/// The threads of a warp of CUDA's, whose driver runs the kernels of tests.
constexpr unsigned kWarp = 32;

/// Both ends between two ranks, which a kernel holds.
class Relay {
 public:
  Relay(Context& context, const GpuCase& one, const char* kernel = RelayArgs::kKernel)
      : kernel_(kernel), source_(context, one.source, one.bytes * static_cast<std::size_t>(one.depth)),
        target_(context, one.target, one.bytes * static_cast<std::size_t>(one.depth)),
        words_(context.allocate(2 * sizeof(std::uint64_t), Space::pinned)) {
    sender = context.sender(1 - context.rank(), kTag, source_.slice(), {.depth = one.depth});
    receiver = context.receiver(1 - context.rank(), kTag, target_.slice(), {.depth = one.depth});
    const std::vector<std::byte> around(target_.slice().bytes(), kAroundParts);
    gpu_copy(target_.slice().data(), around.data(), around.size());
    board().meet(context);  // a GPU gives no memory behind a parked stream
    to_.emplace(sender.on_device(stream.stream()));
    from_.emplace(receiver.on_device(stream.stream()));
    board().meet(context);
  }

  void launch(std::uint64_t rounds, unsigned threads = 128) {
    kernel_.launch(stream, RelayArgs{*to_, *from_, rounds, &words()[0], &words()[1]}, threads);
  }
  std::uint64_t wrong() const { return words()[0]; }
  std::uint64_t result() const { return words()[1]; }

  GpuStream stream;
  Sender sender;
  Receiver receiver;

 private:
  std::uint64_t* words() const { return reinterpret_cast<std::uint64_t*>(words_.data()); }

  GpuKernel kernel_;
  Piece source_;
  Piece target_;
  Memory words_;
  std::optional<DeviceSender> to_;
  std::optional<DeviceReceiver> from_;
};

void relay_twice(Context& context, const GpuCase& one, const char* kernel, unsigned threads) {
  constexpr std::uint64_t kRounds = 30;
  Relay relay(context, one, kernel);
  relay.launch(kRounds, threads);
  relay.launch(kRounds, threads);
  context.synchronize(relay.stream.stream());
  EXPECT_EQ(relay.wrong(), 0U);
  EXPECT_EQ(relay.result(), 0U);
  EXPECT_EQ(relay.sender.epoch(), 2 * kRounds);
  EXPECT_EQ(relay.receiver.epoch(), 2 * kRounds);
  board().meet(context);
}

void expect_relays(const GpuCase& one, const char* kernel, unsigned threads) {
  run_peers(peers_of(one), [&](Context& context) { relay_twice(context, one, kernel, threads); });
}

TEST_P(GpuKernels, drive_channels) { expect_relays(GetParam(), RelayArgs::kKernel, 128); }
TEST_P(GpuKernels, of_a_warp_drive_channels) { expect_relays(GetParam(), RelayArgs::kOfWarp, kWarp); }
TEST_P(GpuKernels, of_a_thread_drive_channels) { expect_relays(GetParam(), RelayArgs::kOfThread, 1); }

/// Or ring for what is not in their reach.
TEST_P(GpuKernels, write_into_the_slots_of_the_peer) { expect_relays(GetParam(), RelayArgs::kInPlace, 128); }

/// Nothing around the part changes; a part may be empty. Parts are refused if a NIC fires the put.
TEST_P(GpuKernels, put_parts) { expect_relays(GetParam(), RelayArgs::kOfParts, 128); }

TEST_P(GpuKernelsOfOneSlot, that_wait_are_released_by_an_abort) {
  run_peers(with_untold(peers_of(GetParam())), [](Context& context) {
    Relay relay(context, GetParam());
    if (context.rank() == 0) {
      relay.launch(1);  // puts, and waits for an epoch that is never put
      expect_within(10s, [&] { return relay.receiver.epoch() == 1; });
      expect_released([&] {
        context.abort("enough");
        expect_code(Code::aborted, [&] { context.synchronize(relay.stream.stream()); });
      });
      EXPECT_EQ(relay.result(), static_cast<std::uint64_t>(DeviceResult::failed));
    }
    board().meet(context);
  });
}

TEST_P(GpuKernelsOfOneSlot, that_wait_too_long_are_released) {
  static constexpr auto kTimeout = 200ms;
  Peers peers = peers_of(GetParam());
  peers.timeout = kTimeout;
  run_peers(with_untold(peers), [](Context& context) {
    Relay relay(context, GetParam());
    if (context.rank() == 0) {
      relay.launch(1);
      expect_released([&] { expect_code(Code::timeout, [&] { context.synchronize(relay.stream.stream()); }); },
                      kTimeout);
      EXPECT_EQ(relay.result(), static_cast<std::uint64_t>(DeviceResult::failed));
    }
    board().meet(context);
  });
}

/// Ranks whose streams are on different GPUs.
class GpuKernelsOfPairs : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuKernelsOfPairs);

TEST_P(GpuKernelsOfPairs, drive_channels) {
  run_on_two_gpus(GetParam(), [](Context& context) {
    if (skips_hip(context)) return;
    for (const char* const kernel : {RelayArgs::kKernel, RelayArgs::kInPlace})
      relay_twice(context, GetParam(), kernel, 128);
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuKernelsOfPairs, testing::ValuesIn(two_gpu_cases()), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GraphsOfGpuPairs, testing::ValuesIn(two_gpu_cases()), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GpuKernels, testing::ValuesIn(graph_cases()), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GpuKernelsOfOneSlot,
                         testing::ValuesIn(only(graph_cases(), [](const GpuCase& one) { return one.depth == 1; })),
                         GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, Graphs, testing::ValuesIn(graph_cases()), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GraphsOfSlots,
                         testing::ValuesIn(only(graph_cases(), [](const GpuCase& one) { return one.depth != 1; })),
                         GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GraphsInOurMemory,
                         testing::ValuesIn(only(graph_cases(),
                                                [](const GpuCase& one) { return one.target != Whose::users; })),
                         GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Full, LongGraphs, testing::ValuesIn(wants_full() ? graph_cases() : std::vector<GpuCase>()),
                         GpuCaseName());

}  // namespace
