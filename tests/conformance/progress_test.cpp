// SPDX-License-Identifier: Apache-2.0
// Many ranks on few cores, many threads in one rank, and a program that waits without working.
#include <sys/resource.h>

#include <thread>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class Progress : public testing::TestWithParam<Case> {};

/// A token that goes round: every rank but one waits at any time.
TEST_P(Progress, eight_ranks_on_few_cores) {
  Case eight = GetParam();
  eight.ranks = 8;
  run_peers(eight.peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Stream stream = order.stream();
    const Rank right = (context.rank() + 1) % 8;
    const Rank left = (context.rank() + 7) % 8;
    const Buffer source(context, one);
    const Buffer target(context, one);
    Sender sender = context.sender(right, kTag, source.all());
    Receiver receiver = context.receiver(left, kTag, target.all());
    for (std::uint64_t lap = 1; lap <= 100; ++lap) {
      if (context.rank() != 0) {
        order.run([slot = receiver.wait(stream), left, lap] { expect_and_poison(slot, {left, kTag, lap}); });
        receiver.release(stream);
      }
      order.run([slot = sender.acquire(stream), rank = context.rank(), lap] {
        fill(bytes_of(slot), {rank, kTag, lap});
      });
      sender.put(stream);
      if (context.rank() == 0) {
        order.run([slot = receiver.wait(stream), left, lap] { expect_and_poison(slot, {left, kTag, lap}); });
        receiver.release(stream);
      }
    }
    context.synchronize(stream);
  });
}

TEST_P(Progress, several_threads_use_different_channels_of_one_context) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Rank other = 1 - context.rank();
    const auto work = [&](Tag tag) {
      Order order(one);
      const Stream stream = order.stream();
      for (std::uint64_t round = 1; round <= 3; ++round) {  // opening and closing at once, too
        const Buffer source(context, one);
        const Buffer target(context, one);
        Sender sender = context.sender(other, tag, source.all());
        Receiver receiver = context.receiver(other, tag, target.all());
        for (std::uint64_t epoch = 1; epoch <= 60; ++epoch) {
          order.run([slot = sender.acquire(stream), stamp = Stamp{context.rank(), tag, 100 * round + epoch}] {
            fill(bytes_of(slot), stamp);
          });
          sender.put(stream);
          order.run([slot = receiver.wait(stream), stamp = Stamp{other, tag, 100 * round + epoch}] {
            expect_and_poison(slot, stamp);
          });
          receiver.release(stream);
        }
        context.synchronize(stream);
      }
    };
    std::vector<std::thread> threads;
    for (Tag t = 0; t < 4; ++t) threads.emplace_back(work, kTag + t);
    for (std::thread& thread : threads) thread.join();
  });
}

std::chrono::microseconds cpu_used() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto in_us = [](const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  };
  return in_us(usage.ru_utime) + in_us(usage.ru_stime);
}

/// The part of one processor that this process uses until `call` has returned.
template <class F>
double part_used(F call) {
  const auto before = cpu_used();
  const auto began = Clock::now();
  call();
  return std::chrono::duration<double>(cpu_used() - before) / std::chrono::duration<double>(Clock::now() - began);
}

TEST_P(Progress, who_waits_uses_no_processor) {
  run_peers(GetParam().peers(), [](Context& context) {
    BothEnds end(context, GetParam());
    const Stream stream = end.stream();
    end.sender.wait_connected();
    end.receiver.wait_connected();
    board().meet(context);
    const double used = part_used([&] {
      if (end.first) {
        end.order.run([slot = end.sender.acquire(stream)] {
          std::this_thread::sleep_for(1s);
          fill(bytes_of(slot), {0, kTag, 1});
        });
        end.sender.put(stream);
      } else {
        end.receiver.wait(stream);
      }
      context.synchronize(stream);
    });
    // The engine polls every millisecond if a network has no event for arrivals (ofi:shm), and each 0.2 ms where a
    // GPU's stream waits for it, or will ring; spinning would use all of a processor. An emulated GPU's stream looks
    // each 50 us.
    EXPECT_LT(used, 0.5);
    if (context.rank() == 1) {
      EXPECT_EQ(difference(end.target.bytes(), {0, kTag, 1}), "");
    }
    board().meet(context);
  });
}

/// A host stream that has nothing to do, and one that was used and synchronized many times.
TEST_P(Progress, who_has_nothing_to_do_uses_no_processor) {
  Case alone = GetParam();
  alone.ranks = 1;
  run_peers(alone.peers(), [](Context& context) {
    HostStream idle;
    HostStream used;
    for (int i = 0; i < 100; ++i) {
      used.run([] {});
      context.synchronize(Stream::host(used));
    }
    EXPECT_LT(part_used([] { std::this_thread::sleep_for(1s); }), kSanitized ? 0.5 : 0.25);
  });
}

std::vector<Case> progress_cases() {
  std::vector<Case> cases = stream_cases();
  std::erase_if(cases, [](const Case& one) { return one.cuda; });  // an emulated GPU is a processor
  return cases;
}

INSTANTIATE_IN_ITS_RANKS(Quick, Progress, testing::ValuesIn(progress_cases()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Progress, testing::ValuesIn(on({{"posted", "posted"}}, {Case{.host = true}})),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Progress, full_cases([] {
                           return with_sizes(on(grounds(), memory_cases()), {0, 4097});
                         }),
                         CaseName());

}  // namespace
