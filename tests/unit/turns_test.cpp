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

using sluice::Stream;
using sluice::kokkos::detail::Turns;

const Stream kInOrder = Stream::program_order();

TEST(Turns, of_all_others_of_the_thread_are_taken) {
  int first_taken = 0, second_taken = 0;
  bool second_left = true;
  Turns alone(kInOrder, [] { return true; });
  EXPECT_TRUE(alone.take_others());
  const Turns first(kInOrder, [&] { return ++first_taken > 0; });
  const Turns second(kInOrder, [&] { return ++second_taken > 0 && !second_left; });
  EXPECT_FALSE(alone.take_others());
  second_left = false;
  EXPECT_TRUE(alone.take_others());
  EXPECT_EQ(first_taken, 2);
  EXPECT_EQ(second_taken, 2);
}

/// Behind a wait on a stream comes nothing that goes on another one; but all turns are taken.
TEST(Turns, leave_nothing_that_a_wait_on_another_stream_would_hold_up) {
  int taken = 0;
  const auto on = [](int& stream) { return Stream::cuda(reinterpret_cast<CUstream_st*>(&stream)); };
  int first = 0, second = 0;
  const Turns in_order(kInOrder, [] { return true; });
  const Turns waits(on(first), [] { return true; });
  std::optional<Turns> same(std::in_place, on(first), [&] { return ++taken < 0; });
  EXPECT_FALSE(waits.take_others());
  EXPECT_FALSE(in_order.take_others()) << "it holds up every stream";
  same->enlist(on(second));
  EXPECT_TRUE(waits.take_others());
  EXPECT_EQ(taken, 3);
  same->enlist(kInOrder);
  EXPECT_TRUE(waits.take_others());
}

TEST(Turns, that_throw_have_nothing_left) {
  const Turns one(kInOrder, [] { return true; });
  const Turns failing(kInOrder, []() -> bool { throw std::runtime_error("not now"); });
  EXPECT_TRUE(one.take_others());
}

/// A call takes no turn of an object that another thread has used since.
TEST(Turns, are_those_of_the_thread_that_was_the_last_to_use_them) {
  int taken = 0;
  const Turns one(kInOrder, [] { return true; });
  std::optional<Turns> other;
  std::thread([&] { other.emplace(kInOrder, [&] { return ++taken > 0; }); }).join();
  EXPECT_TRUE(one.take_others());
  EXPECT_EQ(taken, 0);
  other->enlist(kInOrder);
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
      const Turns own(kInOrder, [] { return true; });
      handed.emplace(kInOrder, [&] { return ++plain > 0; });
      go = true;
      while (!over) own.take_others();
    });
    while (!go) std::this_thread::yield();
    if (round % 2 == 0) {
      handed->enlist(kInOrder);
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
  const Turns one(kInOrder, [] { return true; });
  std::optional<Turns> ended(std::in_place, kInOrder, [&] { return ++taken > 0; });
  const Turns busy(kInOrder, [&] {
    ended.reset();
    for (int i = 0; i < 100; ++i) made.push_back(std::make_unique<Turns>(kInOrder, [&] { return ++taken > 0; }));
    return true;
  });
  EXPECT_FALSE(one.take_others()) << "some may not have had their turn";
  EXPECT_GE(taken, 100);
}

/// A turn that waits for another object takes no turns: its own is under way.
TEST(Turns, are_not_taken_within_others) {
  int taken = 0;
  const Turns one(kInOrder, [] { return true; });
  const Turns within(kInOrder, [&] { return one.take_others(); });
  const Turns other(kInOrder, [&] { return ++taken > 0; });
  EXPECT_TRUE(one.take_others());
  EXPECT_EQ(taken, 1);
}

}  // namespace
