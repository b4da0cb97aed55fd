// SPDX-License-Identifier: Apache-2.0
// Nothing grows: many thousand channels opened and closed leave memory and descriptors as they were.
#include <dirent.h>

#include <fstream>
#include <string>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr Tag kTag = 121;

struct Usage {
  long resident_kib = 0;
  int descriptors = 0;
  int mappings = 0;
};

Usage usage() {
  Usage now;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") status >> now.resident_kib;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++now.mappings;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (folder != nullptr && ::readdir(folder) != nullptr) ++now.descriptors;
  if (folder != nullptr) ::closedir(folder);
  return now;
}

class Lifetime : public testing::TestWithParam<Case> {};

/// Two ranks open a channel each way, pass an epoch and close, `rounds` times. Every hundredth time their memory is new
/// too.
void open_and_close(Context& context, const Case& one, int rounds) {
  Order order(one);
  const Rank other = 1 - context.rank();
  std::optional<Buffer> source;
  std::optional<Buffer> target;
  for (int round = 0; round < rounds; ++round) {
    if (round % 100 == 0) {
      source.emplace(context, one);
      target.emplace(context, one);
    }
    Sender sender = context.sender(other, kTag, source->all());
    Receiver receiver = context.receiver(other, kTag, target->all());
    const auto epoch = static_cast<std::uint64_t>(round);
    order.run([slot = sender.acquire(order.stream()), stamp = Stamp{context.rank(), kTag, epoch}] {
      fill(bytes_of(slot), stamp);
    });
    sender.put(order.stream());
    order.run(
        [slot = receiver.wait(order.stream()), stamp = Stamp{other, kTag, epoch}] { expect_and_poison(slot, stamp); });
    if (round % 2 == 0) receiver.release(order.stream());
    context.synchronize(order.stream());
  }
}

void expect_flat(const Case& one, int rounds) {
  Peers peers = one.peers();
  peers.limit = std::chrono::milliseconds(20'000 + rounds * 10);
  run_peers(peers, [&](Context& context) {
    open_and_close(context, one, rounds / 10);  // warm
    board().meet(context);
    const Usage before = usage();
    open_and_close(context, one, rounds);
    board().meet(context);
    const Usage after = usage();
    EXPECT_LE(after.descriptors, before.descriptors + 4);  // another rank may be looking at its own usage
    EXPECT_LE(after.mappings, before.mappings + 8);
    if (!kSanitized) {  // a sanitizer keeps what is freed
      EXPECT_LE(after.resident_kib, before.resident_kib + 1024);
    }
  });
}

TEST_P(Lifetime, opening_and_closing_leaves_nothing_behind) {
  const int rounds = GetParam().ground.network ? 1000 : 5000;
  expect_flat(GetParam(), kSanitized ? 300 : rounds);
}

class LongLifetime : public testing::TestWithParam<Case> {};

TEST_P(LongLifetime, opening_and_closing_leaves_nothing_behind) {
  expect_flat(GetParam(), kSanitized ? 10'000 : 50'000);
}

/// Contexts, too: their threads, sockets and pages end with them.
TEST(Contexts, leave_nothing_behind) {
  run_peers({.ranks = 1, .limit = 60s}, [](Context&) {
    const auto rounds = [](int count) {
      for (int i = 0; i < count; ++i) {
        const int code = run_threads(3, [](Context& context) {
          const Memory memory = context.allocate(128);
          Sender sender = context.sender((context.rank() + 1) % 3, 1, memory.slice(0, 64));
          Receiver receiver = context.receiver((context.rank() + 2) % 3, 1, memory.slice(64, 64));
          sender.put({});
          receiver.wait({});
        });
        ASSERT_EQ(code, 0);
      }
    };
    rounds(10);
    const Usage before = usage();
    rounds(kSanitized ? 20 : 200);
    const Usage after = usage();
    EXPECT_LE(after.descriptors, before.descriptors);
    EXPECT_LE(after.mappings, before.mappings + 16);
    if (!kSanitized) {
      EXPECT_LE(after.resident_kib, before.resident_kib + 2048);
    }
  });
}

std::vector<Case> some(bool host) {
  std::vector<Case> cases = memory_cases();
  std::erase_if(cases, [&](const Case& one) { return one.host != host; });
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Quick, Lifetime, testing::ValuesIn(some(false)), CaseName());
INSTANTIATE_TEST_SUITE_P(Full, Lifetime, full_cases([] { return with_sizes(some(true), {0, 100'000}); }), CaseName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LongLifetime);  // where nobody asks for Full
INSTANTIATE_TEST_SUITE_P(Full, LongLifetime, full_cases([] { return some(false); }), CaseName());

}  // namespace
