// SPDX-License-Identifier: Apache-2.0
// A peer that is killed while a graph, or a program's kernel, waits for it on the GPU: the wait is released, the host
// gets an error, and the GPU goes on.
#include <memory>
#include <new>

#include "tests/conformance/exchange.hpp"
#include "tests/device/litmus.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr Rank kVictim = 1;
constexpr Rank kLive = 2;

/// With a peer that lives: copies, and a channel that is new.
void expect_gpu_usable(Context& context, const GpuCase& one) {
  constexpr std::uint64_t kEpochs = 3;
  const Rank other = kLive - context.rank();
  GpuStream stream;
  const Piece source(context, one.source, one.bytes);
  const Piece target(context, one.target, one.bytes);
  const Memory bytes = context.allocate(2 * one.bytes, Space::pinned);
  const Slice filled = bytes.slice(0, one.bytes);
  const Slice seen = bytes.slice(one.bytes, one.bytes);
  Sender sender = context.sender(other, kTag + 1, source.slice());
  Receiver receiver = context.receiver(other, kTag + 1, target.slice());
  for (std::uint64_t epoch = 1; epoch <= kEpochs; ++epoch) {
    const Slice slot = sender.acquire(stream.stream());
    stream.run([&context, filled, epoch] { fill(bytes_of(filled), {context.rank(), kTag, epoch}); });
    stream.copy(slot.data(), filled.data(), one.bytes);
    sender.put(stream.stream());
    stream.copy(seen.data(), receiver.wait(stream.stream()).data(), one.bytes);
    stream.run([seen, other, epoch] { EXPECT_EQ(difference(bytes_of(seen), {other, kTag, epoch}), ""); });
    receiver.release(stream.stream());
  }
  context.synchronize(stream.stream());
  sender.close();
  receiver.close();
}

class GpuKill : public testing::TestWithParam<GpuCase> {
 protected:
  /// Rank 1 is killed once rank 0 has said that what it has on the GPU waits; then rank 0 goes on with rank 2.
  /// `prepare`: what 0 and 1 both do, and return.
  template <class Prepare, class Survive>
  static void run(Prepare prepare, Survive survive) {
    Peers peers = peers_of(GetParam(), 3);
    peers.keep_going = true;
    peers.limit = 40s;
    expect_only_rank_1_killed(end_of_peers(peers, [&](Context& context) {
      if (context.rank() == kLive) {
        board().meet(context);
      } else {
        const auto common = prepare(context, kVictim - context.rank());
        if (context.rank() == kVictim) die_when_ready();
        survive(context, *common);
      }
      expect_gpu_usable(context, GetParam());
    }));
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuKill);

/// An exchange of which some has been done.
std::unique_ptr<Exchange> begun_exchange(Context& context, Rank other) {
  const GpuCase& one = testing::WithParamInterface<GpuCase>::GetParam();
  auto exchange = std::make_unique<Exchange>(context, one, other);
  exchange->steps(one.depth);
  context.synchronize(exchange->stream.stream());
  exchange->looks = false;
  return exchange;
}

/// `graph` was launched; it comes to epoch `last` of this end, and waits there.
template <class End>
void expect_release(Context& context, Exchange& exchange, GpuGraph& graph, const End& end, int last) {
  expect_within(10s, [&] { return end.epoch() == static_cast<std::uint64_t>(last); });
  board().set(kReady, 1);
  expect_loss_of_rank_1(
      context, [&] { context.synchronize(exchange.stream.stream()); }, exchange.stream.stream());
  expect_code(Code::peer_lost, [&] { exchange.plan.acquire(exchange.stream.stream()); });
  expect_code(Code::peer_lost, [&] { exchange.plan.wait(exchange.stream.stream()); });
  expect_code(Code::peer_lost, [&] { context.check(); });  // of the other end: each error is thrown once
  graph.launch(exchange.stream);                           // finds nothing to be done
  exchange.stream.synchronize();
  exchange.sender.close();
  exchange.receiver.close();
}

TEST_P(GpuKill, releases_a_graph_that_waits_for_a_signal) {
  run(begun_exchange, [](Context& context, Exchange& exchange) {
    const int depth = GetParam().depth;
    GpuGraph graph = exchange.captured_steps(depth);
    graph.launch(exchange.stream);
    expect_release(context, exchange, graph, exchange.receiver, depth + 1);
  });
}

TEST_P(GpuKill, releases_a_graph_that_waits_for_a_credit) {
  run(begun_exchange, [](Context& context, Exchange& exchange) {
    const int depth = GetParam().depth;
    GpuGraph graph{exchange.stream, [&] {
                     for (int i = 0; i < depth; ++i) exchange.put();
                   }};
    graph.launch(exchange.stream);
    graph.launch(exchange.stream);  // all slots are full
    expect_release(context, exchange, graph, exchange.sender, 2 * depth + 1);
  });
}

/// Both ends between two ranks, for kernels.
struct Held {
  Held(Context& context, const GpuCase& one, Rank other)
      : bytes(one.bytes * static_cast<std::size_t>(one.depth)), source(context, one.source, bytes),
        target(context, one.target, bytes), count_memory(context.allocate(sizeof(LitmusCount), Space::pinned)),
        sender(context.sender(other, kTag, source.slice(), {.depth = one.depth})),
        receiver(context.receiver(other, kTag, target.slice(), {.depth = one.depth})) {
    board().meet(context);
    to.emplace(sender.on_device(stream.stream()));
    from.emplace(receiver.on_device(stream.stream()));
    new (count_memory.data()) LitmusCount{};
  }

  LitmusCount& count() { return *std::launder(reinterpret_cast<LitmusCount*>(count_memory.data())); }

  std::size_t bytes;
  GpuStream stream;
  GpuKernel send{LitmusSend::kKernel};
  GpuKernel receive{LitmusReceive::kKernel};
  Piece source;
  Piece target;
  Memory count_memory;
  Sender sender;
  Receiver receiver;
  std::optional<DeviceSender> to;
  std::optional<DeviceReceiver> from;
};

std::unique_ptr<Held> held_channels(Context& context, Rank other) {
  return std::make_unique<Held>(context, testing::WithParamInterface<GpuCase>::GetParam(), other);
}

/// A kernel was launched that comes to epoch `last` of this end, and waits there.
template <class End>
void expect_release(Context& context, Held& held, const End& end, int last) {
  expect_within(10s, [&] { return end.epoch() == static_cast<std::uint64_t>(last); });
  board().set(kReady, 1);
  expect_loss_of_rank_1(
      context, [&] { context.synchronize(held.stream.stream()); }, held.stream.stream());
  EXPECT_EQ(held.count().result, static_cast<std::uint64_t>(DeviceResult::failed));
  expect_code(Code::peer_lost, [&] { held.sender.drain(); });
  expect_code(Code::peer_lost, [&] { held.receiver.test(); });
  expect_code(Code::peer_lost, [&] { context.check(); });  // of the other end: each error is thrown once
  held.sender.close();
  held.receiver.close();
}

constexpr unsigned kKernelThreads = 64;

TEST_P(GpuKill, releases_a_kernel_that_waits_for_a_signal) {
  run(held_channels, [](Context& context, Held& held) {
    held.receive.launch(held.stream, LitmusReceive{{*held.from, 1, 0, &held.count()}}, kKernelThreads);
    expect_release(context, held, held.receiver, 1);
  });
}

TEST_P(GpuKill, releases_a_kernel_that_waits_for_a_credit) {
  run(held_channels, [](Context& context, Held& held) {
    const int past_all_slots = GetParam().depth + 1;
    held.send.launch(held.stream, LitmusSend{{*held.to, static_cast<std::uint64_t>(past_all_slots), 0, &held.count()}},
                     kKernelThreads);
    expect_release(context, held, held.sender, past_all_slots);
  });
}

std::vector<GpuCase> kill_cases() {
  std::vector<GpuCase> cases;
  for (const Ground& ground : gpu_grounds()) {
    if (!ground.processes || !why_not_kill(ground).empty()) continue;
    if (ground.arms) {  // no network reads the emulated GPU's memory
      cases.push_back({ground, false, Whose::hosts, Whose::hosts, 2, 64});
      continue;
    }
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{200'000}})
      cases.push_back({ground, false, Whose::ours, Whose::ours, 2, bytes});
    cases.push_back({ground, false, Whose::users, Whose::users, 2, 64});
  }
  return cases;
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuKill, testing::ValuesIn(kill_cases()), GpuCaseName());

}  // namespace
