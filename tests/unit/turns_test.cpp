// SPDX-License-Identifier: Apache-2.0
// Objects whose turns are taken by calls of others: of one thread, handed over, made and ended meanwhile.
#include <sluice/kokkos/turns.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

using sluice::Stream;
using sluice::kokkos::detail::Turns;
using sluice::kokkos::detail::Unmoved;

const Stream kInOrder = Stream::program_order();

/// Counts its turns, and says what is left.
struct Object {
  explicit Object(const Stream& stream = kInOrder) { turns.enlist(stream); }

  Unmoved left = Unmoved::nothing;
  int taken = 0, may_wait = 0;
  Turns turns{[this](bool stream_may_wait) {
    ++taken;
    if (stream_may_wait) ++may_wait;
    return stream_may_wait && left == Unmoved::enqueueable ? left = Unmoved::nothing : left;
  }};
};

TEST(Turns, of_all_others_of_the_thread_are_taken) {
  Object alone;
  EXPECT_TRUE(alone.turns.take());
  Object first, second;
  second.left = Unmoved::blocked;
  EXPECT_FALSE(alone.turns.take());
  second.left = Unmoved::nothing;
  EXPECT_TRUE(alone.turns.take());
  EXPECT_EQ(alone.taken, 3);
  EXPECT_EQ(first.taken, 2);
  EXPECT_EQ(second.taken, 2);
}

TEST(Turns, of_one_that_is_not_enlisted_are_its_own) {
  Object other;
  int taken = 0;
  const Turns own([&](bool) { return ++taken > 0 ? Unmoved::nothing : Unmoved::blocked; });
  EXPECT_TRUE(own.take());
  EXPECT_EQ(taken, 1);
  EXPECT_EQ(other.taken, 0);
}

/// Two streams that never wait for each other, and the default one, which waits for all.
struct Streams {
  int places[2] = {};
  Stream first = of(&places[0]), second = of(&places[1]), all = of(nullptr);

  static Stream of(int* place) { return Stream::cuda(reinterpret_cast<CUstream_st*>(place)); }
};

/// Behind a wait on a stream comes nothing that goes on another one; but all turns are taken.
TEST(Turns, leave_nothing_that_a_wait_on_another_stream_would_hold_up) {
  const Streams streams;
  Object in_order, waits(streams.first), other(streams.first);
  other.left = Unmoved::blocked;
  EXPECT_FALSE(waits.turns.take());
  EXPECT_FALSE(in_order.turns.take()) << "it holds up every stream";
  other.turns.enlist(streams.second);
  EXPECT_TRUE(waits.turns.take());
  EXPECT_EQ(other.taken, 3);
  other.turns.enlist(streams.all);
  EXPECT_FALSE(waits.turns.take());
  other.turns.enlist(kInOrder);
  EXPECT_TRUE(waits.turns.take());
}

/// A stream may wait for credit once nothing else is left that would come behind that.
TEST(Turns, make_a_stream_wait_for_the_last_that_is_left) {
  const Streams streams;
  Object first(streams.first), second(streams.first), elsewhere(streams.second);
  first.left = elsewhere.left = Unmoved::enqueueable;
  for (const Unmoved left : {Unmoved::blocked, Unmoved::enqueueable}) {
    second.left = left;
    EXPECT_FALSE(first.turns.take());
    EXPECT_EQ(first.may_wait + second.may_wait, 0);
  }
  second.left = Unmoved::nothing;
  EXPECT_TRUE(second.turns.take());
  EXPECT_EQ(first.left, Unmoved::nothing);
  EXPECT_EQ(elsewhere.may_wait, 0) << "its stream is another one's to let wait";
}

TEST(Turns, that_throw_have_nothing_left) {
  const Object one;
  Turns failing([](bool) -> Unmoved { throw std::runtime_error("not now"); });
  failing.enlist(kInOrder);
  EXPECT_TRUE(one.turns.take());
}

/// A call takes no turn of an object that another thread has used since.
TEST(Turns, are_those_of_the_thread_that_was_the_last_to_use_them) {
  const Object one;
  std::optional<Object> other;
  std::thread([&] { other.emplace(); }).join();
  EXPECT_TRUE(one.turns.take());
  EXPECT_EQ(other->taken, 0);
  other->turns.enlist(kInOrder);
  EXPECT_TRUE(one.turns.take());
  EXPECT_EQ(other->taken, 1);
}

/// The thread that had them takes them until then, and a turn that it is taking is waited for.
TEST(Turns, are_handed_over_while_they_are_taken) {
  for (int round = 0; round < 200; ++round) {
    std::optional<Object> handed;  // its counts: a race unless the hand-over orders both threads
    std::atomic<bool> go{false}, over{false};
    std::thread had([&] {
      const Object own;
      handed.emplace();
      go = true;
      while (!over) own.turns.take();
    });
    while (!go) std::this_thread::yield();
    if (round % 2 == 0) {
      handed->turns.enlist(kInOrder);
      ++handed->taken;
    }
    handed.reset();
    over = true;
    had.join();
  }
}

TEST(Turns, may_make_objects_and_end_some) {
  std::vector<std::unique_ptr<Object>> made;
  const Object one;
  std::optional<Object> ended(std::in_place);
  Turns busy([&](bool) {
    ended.reset();
    for (int i = 0; i < 100; ++i) made.push_back(std::make_unique<Object>());
    return Unmoved::nothing;
  });
  busy.enlist(kInOrder);
  EXPECT_FALSE(one.turns.take()) << "some may not have had their turn";
  EXPECT_EQ(made.size(), 100U);
  EXPECT_GE(std::ranges::count_if(made, [](const auto& each) { return each->taken == 1; }), 99);
}

/// A turn that waits for another object takes the turns of that one alone: its own is under way.
TEST(Turns, are_not_taken_within_others) {
  const Object one;
  Turns within([&](bool) { return one.turns.take() ? Unmoved::nothing : Unmoved::blocked; });
  within.enlist(kInOrder);
  const Object other;
  EXPECT_TRUE(one.turns.take());
  EXPECT_EQ(other.taken, 1);
  EXPECT_EQ(one.taken, 2);
}

}  // namespace
