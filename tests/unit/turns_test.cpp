// SPDX-License-Identifier: Apache-2.0
// Objects whose turns are taken by calls of others: of one thread, handed over, made and ended meanwhile.
#include <sluice/kokkos/turns.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

using sluice::kokkos::detail::Turns;

TEST(Turns, of_all_others_of_the_thread_are_taken) {
  int first_taken = 0, second_taken = 0;
  bool second_left = true;
  Turns alone([] { return true; });
  EXPECT_TRUE(alone.take_others());
  const Turns first([&] { return ++first_taken > 0; });
  const Turns second([&] { return ++second_taken > 0 && !second_left; });
  EXPECT_FALSE(alone.take_others());
  second_left = false;
  EXPECT_TRUE(alone.take_others());
  EXPECT_EQ(first_taken, 2);
  EXPECT_EQ(second_taken, 2);
}

TEST(Turns, that_throw_have_nothing_left) {
  const Turns one([] { return true; });
  const Turns failing([]() -> bool { throw std::runtime_error("not now"); });
  EXPECT_TRUE(one.take_others());
}

/// A call takes no turn of an object that another thread has used since.
TEST(Turns, are_those_of_the_thread_that_was_the_last_to_use_them) {
  int taken = 0;
  const Turns one([] { return true; });
  std::optional<Turns> other;
  std::thread([&] { other.emplace([&] { return ++taken > 0; }); }).join();
  EXPECT_TRUE(one.take_others());
  EXPECT_EQ(taken, 0);
  other->enlist();
  EXPECT_TRUE(one.take_others());
  EXPECT_EQ(taken, 1);
}

/// The thread that had them takes them until then, and a turn that it is taking is waited for.
TEST(Turns, are_handed_over_while_they_are_taken) {
  for (int round = 0; round < 200; ++round) {
    int plain = 0;  // a race unless the hand-over orders both threads
    std::atomic<bool> go{false}, over{false};
    std::optional<Turns> handed;
    std::thread had([&] {
      const Turns own([] { return true; });
      handed.emplace([&] { return ++plain > 0; });
      go = true;
      while (!over) own.take_others();
    });
    while (!go) std::this_thread::yield();
    if (round % 2 == 0) {
      handed->enlist();
      ++plain;
    }
    handed.reset();
    ++plain;
    over = true;
    had.join();
  }
}

TEST(Turns, may_make_objects_and_end_some) {
  std::vector<std::unique_ptr<Turns>> made;
  int taken = 0;
  const Turns one([] { return true; });
  std::optional<Turns> ended(std::in_place, [&] { return ++taken > 0; });
  const Turns busy([&] {
    ended.reset();
    for (int i = 0; i < 100; ++i) made.push_back(std::make_unique<Turns>([&] { return ++taken > 0; }));
    return true;
  });
  EXPECT_FALSE(one.take_others()) << "some may not have had their turn";
  EXPECT_GE(taken, 100);
}

/// A turn that waits for another object takes no turns: its own is under way.
TEST(Turns, are_not_taken_within_others) {
  int taken = 0;
  const Turns one([] { return true; });
  const Turns within([&] { return one.take_others(); });
  const Turns other([&] { return ++taken > 0; });
  EXPECT_TRUE(one.take_others());
  EXPECT_EQ(taken, 1);
}

}  // namespace
