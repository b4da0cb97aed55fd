// SPDX-License-Identifier: Apache-2.0
// Which verbs of a channel may run before others.
#include "runtime/checks.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace sluice;
using runtime::RunOrder;
using runtime::Verb;

using Step = std::pair<Verb, std::uint64_t>;  // a verb of an epoch

/// Enqueues `first` and `second`, and runs `second` alone. Returns whether that is too early.
bool needs(Step second, Step first) {
  RunOrder order;
  bool early = false;
  const std::uint64_t number = order.enqueue({{first.first, {}}, first.second, "a"});
  const std::uint64_t next = order.enqueue({{second.first, {}}, second.second, "b"});
  order.run(
      next, {}, [](device::Lane) {}, [&](const RunOrder::TooEarly&) { early = true; });
  order.run(
      number, {}, [](device::Lane) {}, [](const RunOrder::TooEarly&) { FAIL(); });
  return early;
}

TEST(RunOrder, verbs_need_those_that_begin_their_epoch_and_earlier_ones_of_their_kind) {
  EXPECT_TRUE(needs({Verb::put, 2}, {Verb::put, 1}));
  EXPECT_TRUE(needs({Verb::put, 1}, {Verb::acquire, 1}));
  EXPECT_TRUE(needs({Verb::start, 1}, {Verb::acquire, 1}));
  EXPECT_TRUE(needs({Verb::wait, 2}, {Verb::wait, 1}));
  EXPECT_TRUE(needs({Verb::release, 1}, {Verb::wait, 1}));
  EXPECT_TRUE(needs({Verb::release, 2}, {Verb::release, 1}));
  EXPECT_FALSE(needs({Verb::wait, 2}, {Verb::release, 1}));
  EXPECT_FALSE(needs({Verb::acquire, 2}, {Verb::put, 1}));
  EXPECT_FALSE(needs({Verb::acquire, 2}, {Verb::acquire, 1}));
  EXPECT_FALSE(needs({Verb::put, 1}, {Verb::acquire, 2}));
  EXPECT_FALSE(needs({Verb::release, 1}, {Verb::wait, 2}));
}

TEST(RunOrder, a_verb_waits_for_the_end_of_one_that_has_begun) {
  RunOrder order;
  const std::uint64_t first = order.enqueue({{Verb::put, {}}, 1, "a"});
  const std::uint64_t second = order.enqueue({{Verb::put, {}}, 2, "b"});
  std::atomic<bool> early{false};
  std::vector<int> ran;
  std::thread other;
  const auto raise_word_and_go_on = [&](device::Lane) {
    other = std::thread([&] {  // has seen the word
      order.run(
          second, {}, [&](device::Lane) { ran.push_back(2); }, [&](const RunOrder::TooEarly&) { early = true; });
    });
    for (int n = 0; n < 200 && !early; ++n) std::this_thread::yield();
    ran.push_back(1);
  };
  order.run(first, {}, raise_word_and_go_on, [](const RunOrder::TooEarly&) { FAIL(); });
  other.join();
  EXPECT_FALSE(early);
  EXPECT_EQ(ran, (std::vector<int>{1, 2}));
}

TEST(RunOrder, verbs_that_come_too_early_run_late_and_in_order) {
  RunOrder order;
  std::vector<std::uint64_t> ran;
  std::vector<std::string> why;
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) numbers.push_back(order.enqueue({{Verb::put, {}}, epoch, "s"}));
  for (const std::uint64_t epoch : {3, 2, 1}) {
    order.run(
        numbers[epoch - 1], {}, [&, epoch](device::Lane) { ran.push_back(epoch); },
        [&](const RunOrder::TooEarly& what) { why.push_back(what.text()); });
  }
  EXPECT_EQ(ran, (std::vector<std::uint64_t>{1, 2, 3}));
  ASSERT_EQ(why.size(), 2U);
  EXPECT_NE(why[0].find("(epoch 3, on s) runs before put at an unknown place (epoch 1, on s)"), std::string::npos)
      << why[0];
}

TEST(RunOrder, a_verb_that_a_stream_did_not_take_is_needed_by_none) {
  RunOrder order;
  order.withdraw(order.enqueue({{Verb::put, {}}, 1, "a"}));
  const std::uint64_t next = order.enqueue({{Verb::put, {}}, 1, "a"});
  order.run(
      next, {}, [](device::Lane) {}, [](const RunOrder::TooEarly&) { FAIL(); });
}

}  // namespace
