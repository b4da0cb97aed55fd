// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/shm/faster_way.hpp"
#include "backends/shm/shared_copy.hpp"
#include "base/crossing_copy.hpp"

namespace {

using sluice::backends::Range;
using sluice::backends::shm::CrossMemory;
using sluice::backends::shm::FasterWay;
using sluice::backends::shm::SharedCopy;
using sluice::backends::shm::Way;

class EndThatFails : public sluice::device::Watch {
 public:
  void fail(sluice::Code, const std::string& what) noexcept override {
    set_failed();
    why = what;
  }
  sluice::base::Clock::duration waited(const sluice::device::Wait&, sluice::base::Clock::duration, sluice::Timeout,
                                       sluice::base::WaitNote&) noexcept override {
    return std::chrono::seconds(1);
  }
  std::string why;
};

/// Both sides are this process.
class SharedCopies : public testing::Test {
 protected:
  SharedCopies() { sluice::base::crossing_copies_choose = true; }
  ~SharedCopies() override { sluice::base::crossing_copies_choose = before_; }

  static constexpr std::size_t kSlot = std::size_t{4} << 20U;
  static constexpr std::size_t kRoom = std::size_t{256} << 10U;
  static constexpr auto kUntouched = std::byte{0xFF};

  /// Nothing is known of the ways: through bounce memory, if there is room for a piece.
  bool put(std::uint64_t epoch, Range part, std::size_t room = kRoom) {
    FasterWay ways;
    SharedCopy::Timed timed;
    return put(epoch, part, room, {Way::cached, ways, timed});
  }
  bool put(std::uint64_t epoch, Range part, std::size_t room, SharedCopy::Choice choice) {
    for (std::size_t at = 0; at < part.bytes; ++at) source_[part.offset + at] = byte_of(epoch, at);
    const CrossMemory target{::getpid(), reinterpret_cast<std::uintptr_t>(target_.data() + part.offset)};
    return copy_.put({}, epoch, part, {source_.data() + part.offset, {bounce_.data(), room}, target}, choice, sender_,
                     wake_);
  }
  std::size_t take(std::uint64_t epoch, pid_t sender = ::getpid()) {
    return copy_.take(epoch, target_.data(), bounce_.data(), kSlot, sender);
  }
  /// Puts `part` by the kernel until the receiver has taken pieces of a put, or `most` times. Returns how many it took.
  std::size_t put_by_kernel_until_taken(Range part, pid_t sender, std::uint64_t most) {
    std::atomic<std::uint64_t> begun{0}, over{0}, left{0};
    std::atomic<std::size_t> taken{0};
    std::thread receiver([&] {
      for (std::uint64_t epoch = 1; epoch <= most; ++epoch) {
        while (begun < epoch) std::this_thread::yield();
        while (over < epoch) taken += take(epoch, sender);
        left = epoch;
      }
    });
    for (std::uint64_t epoch = 1; epoch <= most; ++epoch) {
      begun = epoch;
      const bool enough = taken > 0;
      if (!enough && !put(epoch, part, 0)) ADD_FAILURE() << sender_.why;
      over = epoch;
      while (left < epoch) std::this_thread::yield();
      if (!enough) expect_arrived(epoch, part);
    }
    receiver.join();
    return taken;
  }
  void expect_arrived(std::uint64_t epoch, Range part) {
    for (std::size_t at = 0; at < part.bytes; ++at)
      ASSERT_EQ(target_[part.offset + at], byte_of(epoch, at)) << "byte " << at << " of epoch " << epoch;
  }
  template <class End>
  bool end_awaited_put(End end);
  /// Words of the copy.
  enum Word : std::size_t {
    kEpoch,
    kOffset,
    kBytes,
    kPiece,
    kRing,
    kBegin,
    kSource,
    kFilled,
    kTaken,
    kOutEpoch,
    kOutBegin,
    kOutEnd,
    kClaims = 16,
    kCopied,
    kEnd
  };
  std::atomic<std::uint64_t>& word(Word which) {
    return reinterpret_cast<std::array<std::atomic<std::uint64_t>, kEnd>&>(copy_).at(which);
  }
  std::size_t untouched() const {
    return static_cast<std::size_t>(std::count(target_.begin(), target_.end(), kUntouched));
  }
  static std::byte byte_of(std::uint64_t epoch, std::size_t at) {
    return static_cast<std::byte>((epoch * 31 + at % 251) % 251);
  }

  std::vector<std::byte> source_ = std::vector<std::byte>(kSlot), target_ = std::vector<std::byte>(kSlot, kUntouched);
  std::vector<std::byte> bounce_ = std::vector<std::byte>(kSlot);
  const bool before_ = sluice::base::crossing_copies_choose;
  SharedCopy copy_;
  EndThatFails sender_;
  sluice::base::Parking wake_;
};

TEST_F(SharedCopies, wait_for_no_receiver) {
  std::uint64_t epoch = 0;
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{16383}, std::size_t{16384}, std::size_t{100'001}, kSlot}) {
    const Range part{kSlot - bytes, bytes};
    ASSERT_TRUE(put(++epoch, part));
    EXPECT_GT(take(epoch), 0U);
    expect_arrived(epoch, part);
    EXPECT_EQ(take(epoch), 0U) << "all is there";
  }
}

/// The kernel copies the rest.
TEST_F(SharedCopies, use_no_more_than_their_room) {
  ASSERT_TRUE(put(1, {0, kSlot}));
  EXPECT_EQ(untouched(), kRoom);
  EXPECT_TRUE(std::all_of(bounce_.begin() + kRoom, bounce_.end(), [](std::byte one) { return one == std::byte{0}; }));
  ASSERT_TRUE(put(2, {0, kSlot}, 0));
  expect_arrived(2, {0, kSlot});
}

TEST_F(SharedCopies, get_room_from_a_receiver_that_waits) {
  constexpr std::size_t kPieces = kRoom / (std::size_t{64} << 10U);
  constexpr std::uint64_t kMost = 500;  // the receiver's thread may seldom get a core
  std::atomic<std::uint64_t> signal{0}, released{0};
  std::atomic<std::size_t> most_taken{0};
  std::thread receiver([&] {
    for (std::uint64_t epoch = 1; epoch <= kMost; ++epoch) {
      std::size_t taken = 0;
      while (signal < epoch) taken += take(epoch);
      taken += take(epoch);
      if (signal > kMost) return;
      most_taken = std::max(most_taken.load(), taken);
      released = epoch;
    }
  });
  for (std::uint64_t epoch = 1; epoch <= kMost && (most_taken <= kPieces || epoch < 20); ++epoch) {
    const Range part{epoch, kSlot - epoch * 17 % 1000 - epoch};
    ASSERT_TRUE(put(epoch, part));
    signal = epoch;
    while (released < epoch) std::this_thread::yield();
    expect_arrived(epoch, part);
  }
  signal = kMost + 1;
  receiver.join();
  EXPECT_GT(most_taken.load(), kPieces);
}

TEST_F(SharedCopies, of_another_epoch_are_left_alone) {
  ASSERT_TRUE(put(1, {0, 100'000}));
  EXPECT_EQ(take(2), 0U);
  EXPECT_EQ(untouched(), kSlot);
}

/// A peer may write anything. AddressSanitizer watches around the blocks.
TEST_F(SharedCopies, stay_inside_the_slot) {
  const auto take_with = [&](const std::vector<std::pair<Word, std::uint64_t>>& changes) {
    ASSERT_TRUE(put(1, {0, 100'000}));
    for (const auto& [changed, value] : changes) word(changed) = value;
    std::vector<std::byte> target(kSlot), bounce(kSlot);
    (void)copy_.take(1, target.data(), bounce.data(), kSlot, ::getpid());
  };
  for (const Word changed : {kOffset, kBytes, kPiece, kRing, kBegin}) {
    for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{kSlot - 1}, ~std::uint64_t{0}})
      take_with({{changed, value}});
  }
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 62U;  // four times this is 0
  const std::uint64_t next = word(kBegin) + 7;              // of 7 pieces
  take_with({{kPiece, kHuge}, {kRing, 3}, {kBegin, next - 4}});
}

TEST_F(SharedCopies, fail_where_the_target_is_gone) {
  const CrossMemory nowhere{::getpid(), 4096};
  FasterWay ways;
  SharedCopy::Timed timed;
  EXPECT_FALSE(copy_.put({}, 1, {0, 100'000}, {source_.data(), {bounce_.data(), 0}, nowhere},
                         {Way::cached, ways, timed}, sender_, wake_));
  EXPECT_TRUE(sender_.failed());
}

TEST_F(SharedCopies, by_the_kernel_are_done_by_both) {
  const Range part{7, kSlot - 1000};
  EXPECT_GT(put_by_kernel_until_taken(part, ::getpid(), 500), 0U);
}

/// A receiver claims a piece of a put by the kernel, and some time later ends the put by `end()`: counts the piece, or
/// fails the sender. Returns what the put did.
template <class End>
bool SharedCopies::end_awaited_put(End end) {
  constexpr std::uint64_t kMost = 500;  // the receiver's thread may seldom get a core
  for (std::uint64_t epoch = 1; epoch <= kMost; ++epoch) {
    std::atomic<bool> over{false}, claimed{false};
    std::thread receiver([&] {
      while (word(kEpoch) < epoch) std::this_thread::yield();
      std::uint64_t claims = word(kClaims);
      while (!claimed && (claims >> 32U) + 1 < word(kBytes) / word(kPiece))
        claimed = word(kClaims).compare_exchange_weak(claims, claims + 1);
      if (!claimed) return;
      for (int i = 0; i < 200 && !over; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_FALSE(over) << "the put has not waited for the receiver";
      end();
    });
    const bool good = put(epoch, {0, kSlot}, 0);
    over = true;
    receiver.join();
    if (claimed) return good;
  }
  ADD_FAILURE() << "no piece was left to claim";
  return false;
}

TEST_F(SharedCopies, by_the_kernel_last_until_the_receiver_has_its_part) {
  EXPECT_TRUE(end_awaited_put([&] { ++word(kCopied); }));
}

TEST_F(SharedCopies, by_the_kernel_end_with_the_failure_of_a_receiver_that_copies) {
  EXPECT_FALSE(end_awaited_put([&] { sender_.fail(sluice::Code::peer_lost, "it died"); }));
}

TEST_F(SharedCopies, wake_a_receiver_that_sleeps) {
  std::uint64_t epoch = 0;
  for (const std::size_t room : {std::size_t{0}, kSlot}) {
    wake_.sleepers = 1;
    const std::uint32_t before = wake_.changes;
    ASSERT_TRUE(put(++epoch, {0, 100'000}, room));
    EXPECT_NE(wake_.changes, before);
  }
}

/// The sender copies those pieces too.
TEST_F(SharedCopies, by_the_kernel_survive_a_receiver_that_may_not_copy) {
  constexpr pid_t kNobody = 0x7FFF'FFFF;
  const Range part{7, kSlot - 1000};
  EXPECT_GT(put_by_kernel_until_taken(part, kNobody, 500), 0U);
  ASSERT_TRUE(put(501, part, 0));
  word(kClaims) = 0;
  EXPECT_EQ(take(501), 0U) << "tries no more";
}

TEST_F(SharedCopies, by_the_kernel_are_left_alone_where_it_forbids_them) {
  ASSERT_TRUE(put(1, {0, kSlot}, 0));
  word(kClaims) = 0;
  EXPECT_EQ(take(1, 0), 0U);
}

/// A peer may write anything.
TEST_F(SharedCopies, by_the_kernel_stay_inside_the_slot) {
  for (const Word changed : {kOffset, kBytes, kPiece}) {
    for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{kSlot - 1}, ~std::uint64_t{0}}) {
      ASSERT_TRUE(put(1, {0, 100'000}, 0));
      word(kClaims) = 0;
      word(changed) = value;
      std::vector<std::byte> memory(2 * kSlot, kUntouched);
      (void)copy_.take(1, memory.data(), bounce_.data(), kSlot, ::getpid());
      EXPECT_EQ(std::count(memory.begin() + kSlot, memory.end(), kUntouched), kSlot);
    }
  }
}

TEST_F(SharedCopies, by_the_kernel_stay_inside_the_source) {
  std::atomic<bool> over{false};
  std::thread receiver([&] {
    while (!over) word(kClaims) = 0;
  });
  for (std::uint64_t epoch = 1; epoch <= 50; ++epoch) EXPECT_TRUE(put(epoch, {0, 1'000'000}, 0)) << sender_.why;
  over = true;
  receiver.join();
}

/// Times of copies through bounce memory are known once the slot is used again.
TEST_F(SharedCopies, learn_which_way_is_faster) {
  constexpr std::size_t kPart = 100'000;
  constexpr std::uint32_t kTurn = 100;  // in which no way is tried
  FasterWay ways;
  SharedCopy::Timed timed;
  for (int i = 0; i < 4; ++i) ways.took(Way::kernel, kPart, std::chrono::hours(1));
  std::uint64_t epoch = 0;
  const auto put_and_take = [&](Way way) {
    ASSERT_TRUE(put(++epoch, {0, kPart}, kSlot, {way, ways, timed}));
    (void)take(epoch);
    expect_arrived(epoch, {0, kPart});
  };
  for (int i = 0; i < 5; ++i) put_and_take(Way::past_cache);
  put_and_take(Way::cached);
  constexpr auto kHuge = std::uint64_t{1} << 62U;
  using Times = std::pair<std::uint64_t, std::uint64_t>;
  for (const auto& [begin, end] : {Times{0, 0}, {kHuge, 0}, {0, kHuge}, {kHuge, kHuge}, {~kHuge, ~kHuge}}) {
    word(kOutBegin) = begin;  // a peer may write anything
    word(kOutEnd) = end;
    put_and_take(Way::cached);
  }
  EXPECT_EQ(ways.choose(kPart, 0, true), Way::cached) << "their times are not known";
  for (int i = 0; i < 100; ++i) ways.took(Way::past_cache, kPart, std::chrono::hours(1));
  for (int i = 0; i < 5; ++i) put_and_take(Way::cached);
  EXPECT_EQ(ways.choose(kPart, kTurn, true), Way::cached);
  for (int i = 0; i < 100; ++i) ways.took(Way::cached, kPart, std::chrono::hours(2));
  for (int i = 0; i < 100; ++i) put_and_take(Way::past_cache);
  EXPECT_EQ(ways.choose(kPart, kTurn, true), Way::past_cache);
}

constexpr std::uint32_t kTurns = 2048;

/// Counts the turns, among the first `kTurns`, in which `way` is chosen.
int chosen(const FasterWay& ways, Way way, std::size_t bytes, bool kernel = true) {
  int count = 0;
  for (std::uint32_t turn = 0; turn < kTurns; ++turn)
    count += static_cast<int>(ways.choose(bytes, turn, kernel) == way);
  return count;
}

TEST(FasterWays, follow_what_was_faster_lately) {
  constexpr std::size_t kBytes = 40'000;
  constexpr int kMostTurns = kTurns - 2 * 16;  // in the others the slower ways are tried
  FasterWay ways;
  for (const Way way : {Way::cached, Way::past_cache, Way::kernel})
    EXPECT_GE(chosen(ways, way, kBytes), 672) << "their times are not known";
  for (int i = 0; i < 4; ++i) {
    ways.took(Way::cached, kBytes, std::chrono::microseconds(i == 0 ? 900 : 9));  // the first touches new pages
    ways.took(Way::past_cache, kBytes, std::chrono::microseconds(7));
    ways.took(Way::kernel, kBytes, std::chrono::microseconds(5));
  }
  EXPECT_EQ(chosen(ways, Way::kernel, kBytes), kMostTurns);
  EXPECT_EQ(chosen(ways, Way::past_cache, kBytes), 16) << "it is tried";
  EXPECT_EQ(chosen(ways, Way::cached, kBytes), 16) << "it is tried";
  EXPECT_EQ(chosen(ways, Way::kernel, kBytes, false), 0) << "it is not possible";
  EXPECT_EQ(chosen(ways, Way::past_cache, kBytes, false), kTurns - 16);
  EXPECT_LT(chosen(ways, Way::kernel, 4 * kBytes), 704) << "of other sizes nothing is known";
  ways.took(Way::kernel, kBytes, std::chrono::seconds(1));  // once, by a process that was interrupted
  EXPECT_EQ(chosen(ways, Way::kernel, kBytes), kMostTurns);
  for (int i = 0; i < 20; ++i) ways.took(Way::kernel, kBytes, std::chrono::microseconds(20));  // the cores have changed
  EXPECT_EQ(chosen(ways, Way::past_cache, kBytes), kMostTurns);
}

/// Else a way that has become slower would stay.
TEST(FasterWays, want_times_of_all_now_and_then) {
  constexpr std::size_t kBytes = 10'000;
  FasterWay ways;
  const auto wanted = [&](Way way, bool kernel = true) {
    int count = 0;
    for (std::uint32_t turn = 0; turn < kTurns; ++turn)
      count += static_cast<int>(ways.choose(kBytes, turn, kernel) == way && ways.wants_time(kBytes, turn, kernel));
    return count;
  };
  constexpr std::array kAll{Way::cached, Way::past_cache, Way::kernel};
  for (const Way way : kAll) EXPECT_GE(wanted(way), 672) << "their times are not known";
  EXPECT_EQ(wanted(Way::past_cache, false), kTurns / 2);
  for (int i = 0; i < 4; ++i)
    for (const Way way : kAll) ways.took(way, kBytes, std::chrono::microseconds(1 + static_cast<int>(way)));
  for (const Way way : kAll) EXPECT_EQ(wanted(way), 16);
  EXPECT_EQ(wanted(Way::past_cache, false), 16);
}

TEST(FasterWays, take_any_size_and_time) {
  using std::chrono::nanoseconds;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1} << 40U, ~std::size_t{0}}) {
    FasterWay ways;
    for (int i = 0; i < 8; ++i) {
      ways.took(Way::cached, bytes, nanoseconds::max());
      ways.took(Way::past_cache, bytes, nanoseconds::max());
      ways.took(Way::kernel, bytes, i % 2 == 0 ? nanoseconds(0) : nanoseconds::min());
    }
    EXPECT_EQ(ways.choose(bytes, 100, true), Way::kernel);
    for (int i = 0; i < 200; ++i) ways.took(Way::kernel, bytes, nanoseconds::max());
    for (int i = 0; i < 200; ++i) ways.took(Way::cached, bytes, nanoseconds(0));
    EXPECT_EQ(ways.choose(bytes, 100, true), Way::cached) << "no time is too short to grow";
  }
}

}  // namespace
