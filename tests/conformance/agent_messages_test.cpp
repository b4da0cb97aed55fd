// SPDX-License-Identifier: Apache-2.0
// How many messages an access takes that a thread of the owner carries out, or counts.
#include <atomic>
#include <functional>
#include <thread>

#include "tests/conformance/windows.hpp"
#include "tests/faults/wrapped.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kLong = 16 * 4096;

/// Compares the posts of rank 1 and the owner for one access of rank 1 and its flush. `apart`: a backend that maps
/// nothing.
void expect_posts(Posts wanted, const char* what, const std::function<void(Target&, const Slice&)>& access,
                  const char* apart = "apart") {
  const Case one{.ground = {apart, apart}};
  run_peers(one.peers(), [&](Context& context) {
    WindowSide side(context, one, kLong, kLong, 1);
    if (context.rank() == 1) {
      static_cast<void>(side.target.fetch_add(0, 1));  // opens the line to the agent
      const Posts before = posts();
      access(side.target, side.local.all());
      side.flush();
      const Posts after = posts();
      EXPECT_EQ(after.messages - before.messages, wanted.messages) << what;
      EXPECT_EQ(after.accesses - before.accesses, wanted.accesses) << what;
    }
    board().meet(context);
  });
}

TEST(AgentMessages, are_a_request_and_a_reply) {
  const Posts one_question{2, 0};
  expect_posts(one_question, "fetch_add",
               [](Target& target, const Slice& local) { target.fetch_add({}, 8, 1, local.slice(0, kWord)); });
  expect_posts(one_question, "compare_swap",
               [](Target& target, const Slice& local) { target.compare_swap({}, 8, 0, 1, local.slice(0, kWord)); });
  expect_posts(one_question, "accumulate of 4 KiB", [](Target& target, const Slice& local) {
    target.accumulate({}, Op::sum, Number::uint64, local.slice(0, 4096), 0);
  });
  expect_posts(one_question, "a counted put of 4 KiB",
               [](Target& target, const Slice& local) { target.put_notify({}, local.slice(0, 4096), 0, 0); });
  expect_posts(one_question, "a counted get of 4 KiB",
               [](Target& target, const Slice& local) { target.get_notify({}, local.slice(0, 4096), 0, 0); });
  expect_posts(one_question, "notify", [](Target& target, const Slice&) { target.notify({}, 0); });
}

TEST(AgentMessages, of_long_accesses_are_no_more_than_needed) {
  expect_posts({kLong / 4096 + 1, 0}, "each part of an accumulate is sent, and the last replied to",
               [](Target& target, const Slice& local) { target.accumulate({}, Op::sum, Number::uint64, local, 0); });
  expect_posts({2, 1}, "a long put, and its count",
               [](Target& target, const Slice& local) { target.put_notify({}, local, 0, 0); });
  expect_posts({2, 1}, "a long get, and its count",
               [](Target& target, const Slice& local) { target.get_notify({}, local, 0, 0); });
}

TEST(AgentMessages, of_counted_accesses_are_none_where_they_name_their_counter) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}, kLong}) {
    const auto put = [=](Target& target, const Slice& local) { target.put_notify({}, local.slice(0, bytes), 0, 0); };
    expect_posts({0, 1}, "a counted put", put, "numbered");
  }
  expect_posts(
      {0, 1}, "notify", [](Target& target, const Slice&) { target.notify({}, 0); }, "numbered");
  expect_posts(
      {0, 1}, "a long counted get", [](Target& target, const Slice& local) { target.get_notify({}, local, 0, 0); },
      "numbered");
  expect_posts(
      {2, 0}, "a counted get of 4 KiB",
      [](Target& target, const Slice& local) { target.get_notify({}, local.slice(0, 4096), 0, 0); }, "numbered");
}

/// The access, and what tells the owner of it, are posted though nothing completes meanwhile.
void expect_no_wait(const std::function<void(Target&, const Slice&)>& access) {
  const Case one{.ground = {"apart", "apart"}};
  run_peers(one.peers(), [&](Context& context) {
    WindowSide side(context, one, kLong, kLong, 1);
    if (context.rank() == 1) {
      access(side.target, side.local.all());  // opens the line
      side.flush();
      const std::size_t before = posts().messages;
      hold(true);
      access(side.target, side.local.all());
      expect_within(10s, [&] { return posts().messages > before; });
      hold(false);
      side.flush();
    }
    board().meet(context);
  });
}

TEST(AgentMessages, leave_right_behind_their_puts) {
  expect_no_wait([](Target& target, const Slice& local) { target.put_tagged({}, local, 0, 1); });
  expect_no_wait([](Target& target, const Slice& local) { target.put_notify({}, local, 0, 0); });
}

TEST(AgentMessages, that_tell_of_a_put_stay_behind_one_that_the_network_refuses) {
  const Case one{.ground = {"apart", "apart"}};
  run_peers(one.peers(), [&](Context& context) {
    WindowSide side(context, one, kLong, kLong);
    if (context.rank() == 1) {
      side.target.put_tagged({}, side.local.all(), 0, 1);  // opens the line
      side.flush();
      hold_accesses(true);
      std::atomic<bool> accepted = false;
      const std::jthread network([&] {
        for (int i = 0; i < 300; ++i) std::this_thread::yield();  // a call that does not wait returns first
        accepted = true;
        hold_accesses(false);
      });
      side.target.put_tagged({}, side.local.all(), 0, 2);
      EXPECT_TRUE(accepted);
      side.flush();
    }
    board().meet(context);
  });
}

TEST(AgentMessages, of_a_very_long_access_come_behind_many_that_nobody_has_flushed) {
  constexpr std::size_t kVeryLong = 20 * 4096;  // more parts than a line has slots
  const Case one{.ground = {"apart", "apart"}};
  run_peers(one.peers(), [&](Context& context) {
    WindowSide side(context, one, kVeryLong, kVeryLong, 1);
    if (context.rank() == 1) {
      const Slice local = side.local.all();
      const std::uint64_t before = side.target.fetch_add(0, 0);
      for (int i = 0; i < 16; ++i) side.target.fetch_add({}, 0, 1, local.slice(0, kWord));
      const std::size_t rest = kVeryLong - kWord;
      side.target.accumulate({}, Op::sum, Number::uint64, local.slice(kWord, rest), kWord);
      side.flush();
      EXPECT_EQ(side.target.fetch_add(0, 0), before + 16);
    }
    board().meet(context);
  });
}

TEST(AgentMessages, of_plain_accesses_are_none) {
  expect_posts({0, 1}, "put", [](Target& target, const Slice& local) { target.put({}, local, 0); });
  expect_posts({0, 1}, "get", [](Target& target, const Slice& local) { target.get({}, local, 0); });
  expect_posts({0, 0}, "flush alone", [](Target&, const Slice&) {});
}

}  // namespace
