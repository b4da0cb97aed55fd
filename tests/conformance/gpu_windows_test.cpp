// SPDX-License-Identifier: Apache-2.0
// Windows, whose memory is the processor's, and memory of GPUs at their targets.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/gpu_cases.hpp"
#include "tests/conformance/windows.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

/// Targets on a GPU's stream, or in program order.
class GpuTargets : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuTargets);

TEST_P(GpuTargets, move_bytes_of_a_gpu_to_a_window_and_back) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    constexpr std::size_t kBytes = 100'000;
    const auto own = static_cast<std::size_t>(context.rank()) * kBytes;
    const auto next = (own + kBytes) % (2 * kBytes);
    GpuStream gpu;
    const Stream stream = one.inline_order ? Stream() : gpu.stream();
    const Memory memory = context.allocate(2 * kBytes);
    Window window;
    if (context.rank() == 0) window = context.window(kWindow, memory.all(), 1);
    Target target = context.target(0, kWindow);
    const Piece here(context, one.source, kBytes);
    for (std::uint64_t round = 1; round <= 20; ++round) {
      const std::size_t bytes = std::min(kBytes, std::size_t{1} << (round % 17));
      Memory stamped = context.allocate(kBytes);
      fill(bytes_of(stamped.all()).first(bytes), {context.rank(), kTag, round});
      target.put(stream, stamped.slice(0, bytes), own);
      target.get(stream, here.slice().slice(0, bytes), own);
      target.flush(stream);
      target.put(stream, stamped.slice(bytes, kBytes - bytes), own);  // zeros
      target.put_notify(stream, here.slice().slice(0, bytes), own, 0);
      target.flush(stream);
      context.synchronize(stream);
      EXPECT_EQ(difference(bytes_in_gpu(here.slice().slice(0, bytes)), {context.rank(), kTag, round}), "");
      board().meet(context);
      if (context.rank() == 0) {
        window.wait(stream, 0, 2 * round);
        context.synchronize(stream);
        for (const Rank rank : {0, 1}) {
          const auto there = bytes_of(memory.all()).subspan(static_cast<std::size_t>(rank) * kBytes, bytes);
          EXPECT_EQ(difference(there, {rank, kTag, round}), "") << rank;
        }
      }
      target.get(stream, here.slice().slice(0, bytes), next);  // of the other rank
      target.flush(stream);
      context.synchronize(stream);
      EXPECT_EQ(difference(bytes_in_gpu(here.slice().slice(0, bytes)), {1 - context.rank(), kTag, round}), "");
      board().meet(context);
    }
  });
}

TEST_P(GpuTargets, refuse_numbers_in_the_memory_of_a_gpu) {
  if (GetParam().source == Whose::hosts) return;
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    GpuStream gpu;
    const Stream stream = one.inline_order ? Stream() : gpu.stream();
    const Memory memory = context.allocate(kWord);
    Window window;
    if (context.rank() == 0) window = context.window(kWindow, memory.all());
    Target target = context.target(0, kWindow);
    const Piece here(context, one.source, kWord);
    expect_code(Code::unsupported, [&] { target.fetch_add(stream, 0, 1, here.slice()); });
    expect_code(Code::unsupported, [&] { target.accumulate(stream, Op::sum, Number::uint64, here.slice(), 0); });
    const Memory old = context.allocate(kWord);
    target.fetch_add(stream, 0, 1, old.all());
    target.flush(stream);
    context.synchronize(stream);
    board().meet(context);
    if (context.rank() == 0) {
      EXPECT_EQ(word_at(bytes_of(memory.all()), 0), 2U);
    }
    board().meet(context);
  });
}

/// Memory that peers of other processes do not map: atomics are carried out by a thread of the owner, to which a GPU's
/// stream sends nothing.
TEST_P(GpuTargets, count_short_gets_of_memory_of_the_users_in_the_order_of_their_stream) {
  if (GetParam().source != Whose::hosts) return;
  run_peers(peers_of(GetParam()), [](Context& context) {
    GpuStream gpu;
    const Stream stream = GetParam().inline_order ? Stream() : gpu.stream();
    const std::size_t bytes = 1024;
    std::vector<std::byte> memory(bytes);
    const Region users = context.region(memory.data(), bytes);
    Window window;
    if (context.rank() == 0) window = context.window(kWindow, users.all(), 1);
    Target target = context.target(0, kWindow);
    const Memory here = context.allocate(2 * bytes);
    if (context.rank() == 1) {
      fill(bytes_of(here.slice(0, bytes)), {1, kTag, 1});
      target.put(stream, here.slice(0, bytes), 0);
      target.flush(stream);
      target.get_notify(stream, here.slice(bytes, bytes), 0, 0);
      target.flush(stream);
      context.synchronize(stream);
      EXPECT_EQ(difference(bytes_of(here.slice(bytes, bytes)), {1, kTag, 1}), "");
    } else {
      EXPECT_TRUE(window.wait_for(0, 1, 10s));
    }
    board().meet(context);
  });
}

/// The next target has the memory of the first, whose flush the stream has not come to.
TEST_P(GpuTargets, are_closed_before_their_stream_comes_to_the_flush) {
  if (GetParam().inline_order || GetParam().source != Whose::hosts) return;
  run_peers(peers_of(GetParam()), [](Context& context) {
    GpuStream gpu;
    const Memory memory = context.allocate(kWord);
    Window window;
    if (context.rank() == 0) window = context.window(kWindow, memory.all());
    const Memory old = context.allocate(kWord);
    auto first = std::make_unique<Target>(context.target(0, kWindow));
    first->fetch_add(gpu.stream(), 0, 1, old.all());  // loads the kernels, which must not wait for the stream below
    context.synchronize(gpu.stream());
    std::atomic<int> opened{0};
    const auto stop_until = [&](int gate) {
      gpu.run([&opened, gate] {
        while (opened < gate) std::this_thread::yield();
      });
    };
    stop_until(1);
    first->fetch_add(gpu.stream(), 0, 1, old.all());
    stop_until(2);
    first->flush(gpu.stream());
    opened = 1;
    first.reset();
    std::vector<Target> others;
    for (int i = 0; i < 4; ++i) others.push_back(context.target(0, kWindow));
    opened = 2;
    context.synchronize(gpu.stream());
    board().meet(context);
    if (context.rank() == 0) {
      EXPECT_EQ(word_at(bytes_of(memory.all()), 0), 4U);
    }
    board().meet(context);
  });
}

std::vector<GpuCase> cases_of_targets() {
  std::vector<GpuCase> all;
  for (const Ground& ground : gpu_grounds()) {
    if (ground.name != "threads" && ground.name != "shm") continue;
    for (const bool inline_order : {false, true}) {
      for (const Whose whose : {Whose::hosts, Whose::ours, Whose::users, Whose::unshared})
        all.push_back({ground, inline_order, whose, whose});
    }
  }
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuTargets, testing::ValuesIn(cases_of_targets()), GpuCaseName());

}  // namespace
