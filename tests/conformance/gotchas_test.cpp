// SPDX-License-Identifier: Apache-2.0
// Deadlocks on a GPU (device/README.md), each twice: the emulated driver detects the deadlock, and the library, or the
// program, has a way around it.
#include <atomic>
#include <chrono>
#include <new>
#include <optional>
#include <thread>

#include "device/driver.hpp"
#include "tests/conformance/exchange.hpp"
#include "tests/device/litmus.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr unsigned kThreads = 64;

class Gotchas : public testing::TestWithParam<GpuCase> {
 protected:
  /// Both ranks do the same. With these variables the driver tells that `what` cannot go on, and ends the process.
  static void expect_deadlock(const std::string& what, std::vector<std::string> variables, const Body& body) {
    if (!gpu_is_emulated()) return skipped_here("a GPU would hang");
    Peers peers = peers_of(GetParam());
    peers.environment = std::move(variables);
    peers.environment.insert(peers.environment.end(), {"EMUCUDA_DEADLOCK_MS=200", "EMUCUDA_HELD_UP_MS=200"});
    const Ended ended = end_of_peers(peers, body);
    EXPECT_FALSE(ended.hung);
    EXPECT_NE(ended.code, 0);
    EXPECT_NE(ended.text.find("emucuda: deadlock: "), std::string::npos) << ended.text;
    EXPECT_NE(ended.text.find(what), std::string::npos) << ended.text;
  }
  /// Both ranks do the same, and come to an end, with these variables too.
  static void expect_none(std::vector<std::string> variables, const Body& body) {
    Peers peers = peers_of(GetParam());
    peers.environment = std::move(variables);
    run_peers(peers, body);
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Gotchas);

/// Both ends between the two ranks, with a stream for each.
struct ParkedPair {
  explicit ParkedPair(Context& context, Tag tag = kTag, StreamManner puts_on = StreamManner::non_blocking,
                      StreamManner waits_on = StreamManner::non_blocking)
      : one(testing::WithParamInterface<GpuCase>::GetParam()), puts(puts_on), waits(waits_on),
        source(context, one.source, one.bytes), target(context, one.target, one.bytes),
        sender(context.sender(1 - context.rank(), tag, source.slice())),
        receiver(context.receiver(1 - context.rank(), tag, target.slice())) {
    board().meet(context);
  }

  void park() { receiver.wait(waits.stream()); }
  void put() { sender.put(puts.stream()); }
  void finish(Context& context) const {
    context.synchronize(puts.stream());
    context.synchronize(waits.stream());
    board().meet(context);
  }

  GpuCase one;
  GpuStream puts;
  GpuStream waits;
  Piece source;
  Piece target;
  Sender sender;
  Receiver receiver;
};

// ---- implicit synchronisation

TEST_P(Gotchas, freeing_waits_for_the_parked_stream) {
  expect_deadlock("cuMemFree waits for a stream that is parked", {}, [](Context& context) {
    auto own = std::make_unique<GpuBuffer>(kOwnAllocation);
    ParkedPair pair(context);
    pair.park();
    own.reset();
    pair.put();  // what the other waits for, too late
  });
}

TEST_P(Gotchas, allocating_waits_for_the_parked_stream) {
  expect_deadlock("cuMemAlloc waits for a stream that is parked", {}, [](Context& context) {
    ParkedPair pair(context);
    pair.park();
    const GpuBuffer own(kOwnAllocation);
    pair.put();
  });
}

TEST_P(Gotchas, memory_of_ours_comes_and_goes_behind_a_parked_stream) {
  expect_none({}, [](Context& context) {
    ParkedPair pair(context);
    pair.park();
    board().meet(context);
    for (const Space space : {Space::device, Space::pinned, Space::device}) context.allocate(kOwnAllocation, space);
    pair.put();
    pair.finish(context);
  });
}

/// Two pieces of memory are put off, since a stream is parked. Then the driver frees the first of them when the
/// program's own stream has ended what it does; meanwhile the other thread wants to park a stream again, for which both
/// ranks would wait in freeing the second.
TEST_P(Gotchas, no_stream_of_ours_is_parked_while_another_thread_frees) {
  expect_none({"EMUCUDA_DEADLOCK_MS=1000"}, [](Context& context) {
    ParkedPair pair(context);
    std::optional<Memory> first = context.allocate(kOwnAllocation, Space::pinned);
    std::optional<Memory> second = context.allocate(kOwnAllocation, Space::pinned);
    pair.park();
    first.reset();
    second.reset();
    pair.put();
    pair.receiver.release(pair.waits.stream());
    for (GpuStream* const stream : {&pair.puts, &pair.waits}) stream->synchronize();
    std::atomic<bool> parked{false};
    GpuStream program;
    program.run([&] {
      const auto until = std::chrono::steady_clock::now() + 200ms;
      while (!parked && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
    });
    std::thread other([&] {
      std::this_thread::sleep_for(50ms);
      pair.park();
      parked = true;
    });
    context.synchronize(pair.waits.stream());  // frees both
    other.join();
    pair.put();
    pair.finish(context);
    program.synchronize();
  });
}

// ---- the legacy default stream

TEST_P(Gotchas, the_legacy_stream_and_blocking_ones_wait_for_each_other) {
  expect_deadlock("one of them is the legacy default stream", {}, [](Context& context) {
    ParkedPair pair(context, kTag, StreamManner::blocking, StreamManner::legacy);
    pair.park();
    pair.put();
    pair.finish(context);
  });
}

TEST_P(Gotchas, streams_of_ours_do_not_wait_for_the_legacy_one) {
  expect_none({}, [](Context& context) {
    ParkedPair pair(context, kTag, StreamManner::non_blocking, StreamManner::legacy);
    pair.park();
    board().meet(context);
    context.allocate(kOwnAllocation, Space::device);  // which a stream of ours fills
    pair.put();
    pair.finish(context);
  });
}

// ---- few hardware queues

constexpr const char* kOneQueue = "CUDA_DEVICE_MAX_CONNECTIONS=1";

TEST_P(Gotchas, streams_that_share_a_queue_wait_for_each_other) {
  expect_deadlock("they share a hardware queue", {kOneQueue}, [](Context& context) {
    ParkedPair pair(context);
    pair.park();
    pair.put();
    pair.finish(context);
  });
}

TEST_P(Gotchas, a_plan_on_one_stream_needs_one_queue) {
  expect_none({kOneQueue}, [](Context& context) {
    ParkedPair first(context);
    ParkedPair second(context, kTag + 1);
    Plan plan = context.plan();
    for (ParkedPair* const pair : {&first, &second}) plan.add(pair->sender).add(pair->receiver);
    const Stream stream = first.puts.stream();
    plan.commit(stream);
    for (int step = 0; step < 20; ++step) {
      plan.acquire(stream);
      plan.start(stream);
      plan.wait(stream);
      plan.release(stream);
    }
    context.synchronize(stream);
    board().meet(context);
  });
}

// ---- loading kernels

TEST_P(Gotchas, loading_a_kernel_waits_for_the_parked_stream) {
  expect_deadlock("cuModuleLoadData waits for a stream that is parked", {}, [](Context& context) {
    ParkedPair pair(context);
    pair.park();
    const GpuKernel kernel(LitmusArgs::kFill);
    pair.put();
  });
}

/// The plan's are launched for the first time behind a stream that waits.
TEST_P(Gotchas, kernels_of_ours_are_loaded_before_anything_is_parked) {
  expect_none({"CUDA_MODULE_LOADING=LAZY"}, [](Context& context) {
    const GpuCase& one = GetParam();
    Exchange exchange(context, one, 1 - context.rank());
    ParkedPair pair(context);
    pair.park();
    board().meet(context);
    GpuGraph graph = exchange.captured_steps(one.depth);
    graph.launch(exchange.stream);
    context.synchronize(exchange.stream.stream());
    pair.put();
    pair.finish(context);
  });
}

// ---- mapping at first use

/// No stream is parked yet: the hosts wait for each other, until the limit of every wait for a peer that has not opened
/// its end.
TEST_P(Gotchas, hosts_that_use_one_end_before_they_open_the_other_wait_for_each_other) {
  Peers peers = peers_of(GetParam());
  peers.connect_timeout = 200ms;
  run_peers(peers, [](Context& context) {
    const GpuCase& one = GetParam();
    const GpuStream stream;
    const Piece source(context, one.source, one.bytes);
    Sender sender = context.sender(1 - context.rank(), kTag, source.slice());
    expect_code(Code::timeout, [&] { sender.put(stream.stream()); });
    board().meet(context);
    const Piece target(context, one.target, one.bytes);
    Receiver receiver = context.receiver(1 - context.rank(), kTag, target.slice());
    sender.wait_connected(20s);
    receiver.wait_connected(20s);
    sender.put(stream.stream());
    receiver.wait(stream.stream());
    context.synchronize(stream.stream());
    board().meet(context);
  });
}

// ---- kernels that poll

/// The emulated GPU has a place for one kernel, as a real one has for so many blocks.
constexpr const char* kOnePlace = "EMUCUDA_RESIDENT=1";

TEST_P(Gotchas, a_kernel_that_polls_keeps_its_place) {
  expect_deadlock("a kernel is held up by others", {kOnePlace}, [](Context& context) {
    const GpuKernel send(LitmusSend::kKernel);
    const GpuKernel receive(LitmusReceive::kKernel);
    const Memory counts = context.allocate(2 * sizeof(LitmusCount), Space::pinned);
    auto* const count = new (counts.data()) LitmusCount[2]();
    ParkedPair pair(context);
    const DeviceSender to = pair.sender.on_device(pair.puts.stream());
    const DeviceReceiver from = pair.receiver.on_device(pair.waits.stream());
    receive.launch(pair.waits, LitmusReceive{{from, 1, 0, &count[0]}}, kThreads);
    expect_within(10s, [&] { return pair.receiver.epoch() == 1; });  // it has its place
    send.launch(pair.puts, LitmusSend{{to, 1, 0, &count[1]}}, kThreads);
    pair.finish(context);
  });
}

TEST_P(Gotchas, a_stream_that_waits_leaves_the_place_to_kernels) {
  expect_none({kOnePlace}, [](Context& context) {
    const GpuKernel fill(LitmusArgs::kFill);
    const Memory counts = context.allocate(sizeof(LitmusCount), Space::pinned);
    auto* const count = new (counts.data()) LitmusCount;
    ParkedPair pair(context);
    pair.park();
    fill.launch(pair.puts, LitmusArgs{pair.source.slice().data(), pair.one.bytes, 0, count}, kThreads);
    pair.put();
    pair.finish(context);
    EXPECT_EQ(count->epochs, 1U);
  });
}

// ---- kernels that have still to begin

/// The library cannot see the function that the stream waits for, nor the graph behind it.
TEST_P(Gotchas, nothing_is_freed_while_kernels_drive_an_open_channel) {
  expect_none({"EMUCUDA_DEADLOCK_MS=1000"}, [](Context& context) {
    const GpuCase& one = GetParam();
    Exchange exchange(context, one, 1 - context.rank());
    GpuGraph graph = exchange.captured_steps(one.depth);
    {
      ParkedPair other(context);
      const Memory own = context.allocate(kOwnAllocation, Space::device);
      exchange.stream.run([] { board().await(kGo, 1); });
      graph.launch(exchange.stream);
      other.put();
      other.park();
      other.finish(context);
    }
    board().meet(context);
    board().set(kGo, 1);
    context.synchronize(exchange.stream.stream());
    EXPECT_EQ(exchange.taken(), static_cast<std::uint64_t>(one.depth));
    board().meet(context);
  });
}

// ---- freeing while a stream captures

TEST_P(Gotchas, freeing_ends_no_capture) {
  expect_none({}, [](Context& context) {
    GpuStream stream;
    device::Driver& driver = *device::driver(stream.stream().kind());
    std::optional<Memory> own = context.allocate(kOwnAllocation, Space::device);
    const std::byte* const at = own->all().data();
    ASSERT_TRUE(driver.find(at));
    int replays = 0;
    GpuGraph graph(stream, [&] {
      stream.run([&] { ++replays; });
      own.reset();
    });
    EXPECT_FALSE(driver.find(at));
    graph.launch(stream);
    context.synchronize(stream.stream());
    EXPECT_EQ(replays, 1);
  });
}

TEST_P(Gotchas, freeing_is_put_off_while_a_plan_is_captured) {
  expect_none({}, [](Context& context) {
    const GpuCase& one = GetParam();
    Exchange exchange(context, one, 1 - context.rank());
    std::optional<Memory> own = context.allocate(kOwnAllocation, Space::device);
    GpuGraph graph{exchange.stream, [&] {
                     exchange.steps(one.depth);
                     own.reset();
                   }};
    graph.launch(exchange.stream);
    context.synchronize(exchange.stream.stream());
    EXPECT_EQ(exchange.taken(), static_cast<std::uint64_t>(one.depth));
    board().meet(context);
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Gotchas, testing::ValuesIn(one_case_on({"shm"})), GpuCaseName());

}  // namespace
