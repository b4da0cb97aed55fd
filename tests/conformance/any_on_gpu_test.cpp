// SPDX-License-Identifier: Apache-2.0
// WaitAny in the order of a GPU's stream: what differs from a HostStream.
#include <atomic>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/any_streams.hpp"
#include "tests/conformance/gpu_cases.hpp"
#include "tests/conformance/released.hpp"
#include "tests/device/arrivals.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class AnyOnGpu : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AnyOnGpu);
class AnyInGpuMemory : public AnyOnGpu {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AnyInGpuMemory);

/// The channels of a GpuCase on three ranks, with the memory of a Case.
Case any_case(const GpuCase& one) {
  Case made;
  made.ground = one.ground;
  made.host = made.cuda = true;
  made.ranks = 3;
  return made;
}
Case any_sender_case(const GpuCase& one) {
  Case made = any_case(one);
  made.host = made.cuda = false;
  return made;
}

std::uint64_t sum_of(const Stamp& stamp, std::size_t bytes) {
  std::vector<std::byte> filled(bytes);
  fill(filled, stamp);
  return std::accumulate(filled.begin(), filled.end(), std::uint64_t{0},
                         [](std::uint64_t sum, std::byte one) { return sum + static_cast<std::uint64_t>(one); });
}

/// About as much as a line of the library holds is enqueued before the first put, and then more.
TEST_P(AnyInGpuMemory, kernels_find_what_has_come_and_its_bytes) {
  run_peers(peers_of(GetParam(), 3), [](Context& context) {
    constexpr std::uint64_t kSteps = 100;
    constexpr std::uint64_t kAhead = 30;  // a line of the library holds 64 calls, which are two of each step
    const auto sender_at = [](std::uint64_t step) { return static_cast<Rank>((step * 3 + step / 4) % 2) + 1; };
    if (context.rank() != 0) {
      AnySender sender(context, any_sender_case(GetParam()));
      for (std::uint64_t step = 1; step <= kSteps; ++step) {
        board().await(kAnyTurn, step);
        if (sender_at(step) == context.rank()) sender.put();
      }
      return board().meet(context);
    }
    GpuStream gpu;
    const GpuKernel note(ArrivalsArgs::kKernel);
    const PinnedBuffer notes((kSteps + 1) * sizeof(ArrivalsArgs::Note));
    auto* const noted = reinterpret_cast<std::uint64_t*>(notes.data());
    auto* const first = reinterpret_cast<ArrivalsArgs::Note*>(notes.data()) + 1;
    *noted = 0;
    std::vector<Piece> pieces;
    std::vector<Receiver> receivers;
    pieces.reserve(2);
    for (Rank rank = 1; rank <= 2; ++rank) {
      pieces.emplace_back(context, GetParam().target, GetParam().bytes);
      receivers.push_back(context.receiver(rank, kTag, pieces.back().slice()));
    }
    WaitAny any(receivers);
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      const auto ticket = step % 2 == 0 ? any.wait(gpu.stream()) : any.wait_some(gpu.stream());
      note.launch(gpu, ArrivalsArgs{ticket.on_device(), noted, first}, 1);
      any.release(gpu.stream(), ticket);
      gpu.run([step] { board().set(kAnyTurn, step + 1); });
      if (step == kAhead) board().set(kAnyTurn, 1);
    }
    context.synchronize(gpu.stream());
    ASSERT_EQ(*noted, kSteps);
    std::vector<std::uint64_t> epochs(2);
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      const auto& one = first[step - 1];
      ASSERT_EQ(static_cast<Rank>(one.index) + 1, sender_at(step));
      EXPECT_EQ(one.bytes, GetParam().bytes);
      EXPECT_EQ(one.sum, sum_of({sender_at(step), kTag, ++epochs[one.index]}, one.bytes)) << step;
    }
    board().meet(context);
  });
}

/// The first kernel is held up, while the host drops its ticket and enqueues more waits.
TEST_P(AnyOnGpu, what_kernels_read_stays_until_they_have_run) {
  run_peers(peers_of(GetParam(), 3), [](Context& context) {
    constexpr int kMessages = 5;
    const auto deep = [](Case one) {
      one.depth = kMessages;
      return one;
    };
    if (context.rank() != 0) {
      AnySender sender(context, deep(any_sender_case(GetParam())));
      for (int i = 0; context.rank() == 1 && i < kMessages; ++i) sender.put();
      return board().meet(context);
    }
    std::atomic<bool> go{false};
    AnyWaiter waiter(context, deep(any_case(GetParam())));
    const GpuKernel note(ArrivalsArgs::kKernel);
    const PinnedBuffer notes((kMessages + 1) * sizeof(ArrivalsArgs::Note));
    auto* const noted = reinterpret_cast<std::uint64_t*>(notes.data());
    auto* const first = reinterpret_cast<ArrivalsArgs::Note*>(notes.data()) + 1;
    *noted = 0;
    for (int i = 0; i < kMessages; ++i) {
      auto ticket = waiter.any.wait(waiter.stream());
      if (i == 0) {
        waiter.order.run([&] {
          while (!go) std::this_thread::sleep_for(1ms);
        });
        expect_within(10s, [&] { return ticket.done(); });
      }
      note.launch(*waiter.order.gpu(), ArrivalsArgs{ticket.on_device(), noted, first}, 1);
      ticket = {};
      std::this_thread::sleep_for(2ms);
    }
    go = true;
    waiter.synchronize();
    EXPECT_EQ(*noted, static_cast<std::uint64_t>(kMessages));
    board().meet(context);
  });
}

TEST_P(AnyOnGpu, a_release_waits_for_the_work_before_it) {
  run_peers(peers_of(GetParam(), 3), [](Context& context) {
    constexpr std::size_t kRead = 3;  // on the board: rank 0 has read so many messages
    constexpr std::uint64_t kMessages = 5;
    if (context.rank() == 0) {
      AnyWaiter waiter(context, any_case(GetParam()));
      for (std::uint64_t i = 1; i <= kMessages; ++i) {
        const auto ticket = waiter.any.wait(waiter.stream());
        waiter.order.run([ticket, i] {
          std::this_thread::sleep_for(5ms);
          expect_and_poison(*ticket.arrival()->slot, {1, kTag, i});
          board().set(kRead, i);
        });
        waiter.any.release(waiter.stream(), ticket);
      }
      waiter.synchronize();
      EXPECT_EQ(waiter.any.left(), 2U);
    } else {
      AnySender sender(context, any_sender_case(GetParam()));
      for (std::uint64_t i = 1; context.rank() == 1 && i <= kMessages; ++i) {
        sender.put();
        sender.sender.drain();
        EXPECT_GE(board().word(kRead).load() + 1, i);  // it has waited for the release of the one before
      }
      board().await(kRead, kMessages);
    }
    board().meet(context);
  });
}

/// Rank 1 puts after the other checks of the same channel.
TEST_P(AnyOnGpu, what_it_cannot_do_is_refused_and_changes_nothing) {
  run_peers(peers_of(GetParam(), 3), [](Context& context) {
    if (context.rank() != 0) {
      AnySender sender(context, any_sender_case(GetParam()));
      board().await(kAnyTurn, 1);
      if (context.rank() == 1) sender.put();
      return board().meet(context);
    }
    AnyWaiter waiter(context, any_case(GetParam()));
    const Stream stream = waiter.stream();
    const Buffer memory(context, any_case(GetParam()));
    WaitAny none;
    expect_code(Code::misuse, [&] { none.wait(stream); });
    expect_code(Code::misuse, [&] { static_cast<void>(WaitAny::Ticket().on_device()); });
    const GpuGraph graph(*waiter.order.gpu(), [&] {
      const auto refused = expect_code(Code::unsupported, [&] { waiter.any.wait(stream); });
      EXPECT_NE(std::string(refused->what()).find("graph"), std::string::npos);
      expect_code(Code::unsupported, [&] { waiter.any.wait_some(stream); });
    });
    const auto ticket = waiter.any.wait(stream);
    GpuStream other;
    expect_code(Code::misuse, [&] { waiter.any.wait(other.stream()); });
    expect_code(Code::misuse, [&] { waiter.any.wait_for(0ns); });
    expect_code(Code::misuse, [&] { waiter.any.add(waiter.receivers.front()); });
    expect_code(Code::misuse, [&] { waiter.any.release({}, ticket); });
    {
      HostStream host;
      expect_code(Code::misuse, [&] { waiter.any.wait(Stream::host(host)); });
    }
    waiter.any.release(stream, ticket);
    expect_code(Code::misuse, [&] { waiter.any.release(stream, ticket); });
    board().set(kAnyTurn, 1);
    waiter.synchronize();
    EXPECT_EQ(ticket.arrival()->index, 0U);
    EXPECT_FALSE(waiter.any.wait_for(0ns));  // the host may use it again
    HostStream host;
    expect_code(Code::timeout, [&] {
      HostStream hasty({.timeout = 5ms});
      const auto of_host = waiter.any.wait(Stream::host(hasty));
      expect_code(Code::misuse, [&] { static_cast<void>(of_host.on_device()); });
      hasty.synchronize();
    });
    waiter.receivers.front().wait_connected();
    expect_code(Code::timeout, [&] { waiter.any.wait(1ms); });
    board().meet(context);
  });
}

TEST_P(AnyOnGpu, one_that_is_used_by_its_own_verbs_is_refused) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    if (context.rank() == 1) {
      AnySender sender(context, any_sender_case(GetParam()));
      sender.put();
      return board().meet(context);
    }
    GpuStream gpu;
    const Memory memory = context.allocate(any_case(GetParam()).bytes);
    Receiver receiver = context.receiver(1, kTag, memory.all());
    receiver.wait(gpu.stream());
    receiver.release(gpu.stream());
    context.synchronize(gpu.stream());
    WaitAny any(std::span(&receiver, 1));
    expect_code(Code::misuse, [&] { any.wait(gpu.stream()); });
    board().meet(context);
  });
}

TEST_P(AnyOnGpu, own_verbs_on_a_gpus_stream_are_refused_while_it_has_the_receiver) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    if (context.rank() == 1) {
      AnySender sender(context, any_sender_case(GetParam()));
      sender.put();
      sender.put();
      return board().meet(context);
    }
    GpuStream gpu;
    const Memory memory = context.allocate(any_case(GetParam()).bytes);
    Receiver receiver = context.receiver(1, kTag, memory.all());
    {
      WaitAny any(std::span(&receiver, 1));
      any.release(gpu.stream(), any.wait(gpu.stream()));
      context.synchronize(gpu.stream());
      const auto refused = expect_code(Code::misuse, [&] { receiver.wait(gpu.stream()); });
      EXPECT_NE(std::string(refused->what()).find("WaitAny"), std::string::npos);
    }
    receiver.wait(gpu.stream());
    receiver.release(gpu.stream());
    context.synchronize(gpu.stream());
    EXPECT_EQ(receiver.epoch(), 2U);
    board().meet(context);
  });
}

TEST_P(AnyOnGpu, a_limit_ends_the_wait_and_fails_no_receiver) {
  Peers peers = peers_of(GetParam(), 3);
  peers.timeout = 200ms;
  run_peers(peers, [](Context& context) {
    constexpr std::size_t kGivenUp = 3;  // on the board
    if (context.rank() != 0) {
      AnySender sender(context, any_sender_case(GetParam()));
      board().await(kGivenUp, 1);
      if (context.rank() == 1) sender.put();
      board().await(kGivenUp, 2);
      return;
    }
    AnyWaiter waiter(context, any_case(GetParam()));
    const auto ticket = waiter.any.wait(waiter.stream());
    const auto behind = waiter.any.wait(waiter.stream());
    bool ran = false;
    waiter.order.run([&] { ran = true; });
    expect_released([&] { expect_code(Code::timeout, [&] { waiter.synchronize(); }); }, 200ms);
    EXPECT_TRUE(ran);
    expect_within(10s, [&] { return ticket.done(); });
    board().set(kGivenUp, 1);  // the wait behind takes nothing of it
    expect_within(10s, [&] { return behind.done(); });
    expect_code(Code::timeout, [&] { static_cast<void>(ticket.arrival()); });
    expect_code(Code::timeout, [&] { static_cast<void>(behind.arrival()); });
    EXPECT_EQ(ticket.on_device().size(), 0U);
    EXPECT_EQ(behind.on_device().size(), 0U);
    expect_code(Code::timeout, [&] { waiter.any.wait(waiter.stream()); });
    const auto got = waiter.any.wait(10s);  // by the host
    EXPECT_EQ(got->index, 0U);
    waiter.receivers.front().release({});
    board().set(kGivenUp, 2);
  });
}

/// All messages have arrived before the waits.
TEST_P(AnyOnGpu, a_limit_does_not_count_the_work_before_a_wait) {
  static constexpr auto kLimit = 500ms;
  Peers peers = peers_of(GetParam(), 3);
  peers.timeout = kLimit;
  run_peers(peers, [](Context& context) {
    const auto deep = [](Case one) {
      one.depth = 2;
      return one;
    };
    if (context.rank() != 0) {
      AnySender sender(context, deep(any_sender_case(GetParam())));
      for (int i = 0; context.rank() == 1 && i < 2; ++i) sender.put();
      sender.sender.drain(10s);
      board().meet(context);
      return board().meet(context);
    }
    AnyWaiter waiter(context, deep(any_case(GetParam())));
    board().meet(context);
    waiter.any.release(waiter.stream(), waiter.any.wait(waiter.stream()));  // the first wait loads kernels
    waiter.synchronize();
    waiter.order.run([] { std::this_thread::sleep_for(2 * kLimit); });
    const auto ticket = waiter.any.wait(waiter.stream());
    waiter.any.release(waiter.stream(), ticket);
    waiter.synchronize();
    EXPECT_EQ(ticket.arrival()->index, 0U);
    board().meet(context);
  });
}

/// The host releases what the ticket had: a mistake.
TEST_P(AnyOnGpu, a_release_that_is_refused_ends_its_waits_and_they_take_nothing) {
  run_peers(with_untold(peers_of(GetParam(), 3)), [](Context& context) {
    const auto deep = [](Case one) {
      one.depth = 2;
      return one;
    };
    if (context.rank() != 0) {
      AnySender sender(context, deep(any_sender_case(GetParam())));
      for (int i = 0; context.rank() == 1 && i < 2; ++i) sender.put();
      return board().meet(context);
    }
    std::atomic<bool> go{false};
    AnyWaiter waiter(context, deep(any_case(GetParam())));
    Receiver& receiver = waiter.receivers.front();
    const auto ticket = waiter.any.wait(waiter.stream());
    waiter.order.run([&] {
      while (!go) std::this_thread::sleep_for(1ms);
    });
    waiter.any.release(waiter.stream(), ticket);
    const auto behind = waiter.any.wait(waiter.stream());
    expect_within(10s, [&] { return ticket.done(); });
    receiver.release({});
    go = true;
    expect_released([&] { expect_code(Code::misuse, [&] { waiter.synchronize(); }); });
    expect_within(10s, [&] { return behind.done(); });
    expect_code(Code::misuse, [&] { static_cast<void>(behind.arrival()); });
    EXPECT_EQ(behind.on_device().size(), 0U);
    EXPECT_EQ(receiver.epoch(), 1U);
    EXPECT_EQ(ticket.arrival()->index, 0U);
    EXPECT_EQ(waiter.any.wait(10s)->index, 0U);  // by the host
    EXPECT_EQ(receiver.epoch(), 2U);
    board().meet(context);
  });
}

TEST_P(AnyOnGpu, destroying_it_ends_its_waits) {
  run_peers(peers_of(GetParam(), 3), [](Context& context) {
    if (context.rank() != 0) {
      const AnySender sender(context, any_sender_case(GetParam()));
      return board().meet(context);
    }
    AnyWaiter waiter(context, any_case(GetParam()));
    for (Receiver& receiver : waiter.receivers) receiver.wait_connected();
    std::vector<WaitAny::Ticket> tickets;
    for (int i = 0; i < 3; ++i) {
      tickets.push_back(waiter.any.wait(waiter.stream()));
      waiter.any.release(waiter.stream(), tickets.back());
    }
    expect_released([&] { waiter.any = WaitAny(); });
    for (Receiver& receiver : waiter.receivers) receiver.close(15s);
    expect_code(Code::aborted, [&] { waiter.synchronize(); });
    for (const auto& ticket : tickets) {
      EXPECT_TRUE(ticket.done());
      expect_code(Code::aborted, [&] { static_cast<void>(ticket.arrival()); });
      EXPECT_EQ(ticket.on_device().size(), 0U);
    }
    board().meet(context);
  });
}

/// The kernel of the second stream reads the ticket of the first.
TEST_P(AnyOnGpu, streams_of_one_gpu_use_it_one_after_the_other) {
  run_peers(peers_of(GetParam(), 3), [](Context& context) {
    constexpr std::uint64_t kMessages = 6;
    if (context.rank() != 0) {
      AnySender sender(context, any_sender_case(GetParam()));
      for (std::uint64_t i = 0; context.rank() == 1 && i < kMessages; ++i) sender.put();
      return board().meet(context);
    }
    AnyWaiter waiter(context, any_case(GetParam()));
    const GpuKernel note(ArrivalsArgs::kKernel);
    const PinnedBuffer notes((kMessages + 1) * sizeof(ArrivalsArgs::Note));
    auto* const noted = reinterpret_cast<std::uint64_t*>(notes.data());
    auto* const first = reinterpret_cast<ArrivalsArgs::Note*>(notes.data()) + 1;
    *noted = 0;
    GpuStream streams[2];
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      GpuStream& taker = streams[i % 2];
      GpuStream& reader = streams[1 - i % 2];
      const auto ticket = waiter.any.wait(taker.stream());
      context.synchronize(taker.stream());
      note.launch(reader, ArrivalsArgs{ticket.on_device(), noted, first}, 1);
      waiter.any.release(reader.stream(), ticket);
      context.synchronize(reader.stream());
      ASSERT_EQ(*noted, i + 1);
      EXPECT_EQ(first[i].index, 0U);
      EXPECT_EQ(first[i].sum, sum_of({1, kTag, i + 1}, first[i].bytes)) << i;
    }
    board().meet(context);
  });
}

/// The host keeps all tickets, and the next wait is enqueued before the one before has ended.
TEST_P(AnyOnGpu, tickets_beyond_those_that_were_mapped_are_refused_until_the_waits_have_ended) {
  run_peers(peers_of(GetParam(), 3), [](Context& context) {
    constexpr std::uint64_t kMostSteps = 1000;
    constexpr std::size_t kLast = 3;  // on the board: the last step that rank 1 puts for
    if (context.rank() != 0) {
      AnySender sender(context, any_sender_case(GetParam()));
      for (std::uint64_t step = 1; context.rank() == 1; ++step) {
        board().await(kAnyTurn, step);
        if (board().word(kLast) == step) break;
        sender.put();
      }
      return board().meet(context);
    }
    AnyWaiter waiter(context, any_case(GetParam()));
    std::vector<WaitAny::Ticket> tickets;
    const auto enqueue = [&] {
      tickets.push_back(waiter.any.wait(waiter.stream()));
      waiter.any.release(waiter.stream(), tickets.back());
    };
    std::optional<Code> refused;
    enqueue();
    std::uint64_t step = 0;
    while (!refused && step < kMostSteps) {
      try {
        enqueue();
      } catch (const Error& reason) {
        refused = reason.code();
      }
      board().set(kAnyTurn, ++step);
      expect_within(10s, [&] { return tickets[step - 1].done(); });
    }
    EXPECT_EQ(refused, Code::out_of_resources);
    waiter.synchronize();
    enqueue();  // more is mapped
    board().set(kAnyTurn, ++step);
    waiter.synchronize();
    EXPECT_EQ(tickets.back().arrival()->slot->bytes(), any_case(GetParam()).bytes);
    board().set(kLast, step + 1);
    board().set(kAnyTurn, step + 1);
    board().meet(context);
  });
}

/// The stream comes to the wait later, and finds it ended.
TEST_P(AnyOnGpu, destroying_it_returns_within_a_limit_though_the_stream_stands_still) {
  Peers peers = with_untold(peers_of(GetParam(), 3));
  peers.connect_timeout = 2s;
  run_peers(peers, [](Context& context) {
    if (context.rank() != 0) {
      AnySender sender(context, any_sender_case(GetParam()));
      sender.sender.wait_connected(15s);
      if (context.rank() == 1) sender.put();
      return board().meet(context);
    }
    std::atomic<bool> go{false};
    AnyWaiter waiter(context, any_case(GetParam()));
    waiter.any.release(waiter.stream(), waiter.any.wait(waiter.stream()));  // the first wait loads kernels
    waiter.synchronize();
    for (Receiver& receiver : waiter.receivers) receiver.wait_connected(10s);
    waiter.order.run([&] {
      while (!go) std::this_thread::sleep_for(1ms);
    });
    const auto ticket = waiter.any.wait(waiter.stream());
    waiter.any.release(waiter.stream(), ticket);
    expect_released([&] { waiter.any = WaitAny(); }, 2s);
    go = true;
    expect_within(10s, [&] { return ticket.done(); });
    expect_code(Code::aborted, [&] { static_cast<void>(ticket.arrival()); });
    EXPECT_EQ(ticket.on_device().size(), 0U);
    waiter.order.gpu()->synchronize();
    board().meet(context);
  });
}

TEST_P(AnyOnGpu, abort_ends_its_waits) {
  run_peers(with_untold(peers_of(GetParam(), 3)), [](Context& context) {
    if (context.rank() != 0) {
      const AnySender sender(context, any_sender_case(GetParam()));
      return expect_reported(context, Code::aborted);
    }
    AnyWaiter waiter(context, any_case(GetParam()));
    for (Receiver& receiver : waiter.receivers) receiver.wait_connected();
    const auto ticket = waiter.any.wait(waiter.stream());
    context.abort("enough");
    expect_released([&] { expect_code(Code::aborted, [&] { waiter.synchronize(); }); });
    expect_within(10s, [&] { return ticket.done(); });
    expect_code(Code::aborted, [&] { static_cast<void>(ticket.arrival()); });
    EXPECT_EQ(ticket.on_device().size(), 0U);
  });
}

std::vector<GpuCase> any_on_gpu_cases() { return one_case_on({"threads", "shm"}); }
std::vector<GpuCase> any_in_memory_cases() {
  std::vector<GpuCase> cases;
  for (const GpuCase& one : any_on_gpu_cases()) {
    for (const Whose target : {Whose::hosts, Whose::ours, Whose::users}) {
      cases.push_back(one);
      cases.back().target = target;
    }
  }
  return cases;
}

INSTANTIATE_IN_ITS_RANKS(Quick, AnyOnGpu, testing::ValuesIn(any_on_gpu_cases()), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, AnyInGpuMemory, testing::ValuesIn(any_in_memory_cases()), GpuCaseName());

}  // namespace
