// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/shm/shared_copy.hpp"

namespace {

using sluice::backends::Range;
using sluice::backends::shm::CrossMemory;
using sluice::backends::shm::SharedCopy;

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
  static constexpr std::size_t kSlot = std::size_t{4} << 20U;
  static constexpr std::size_t kRoom = std::size_t{256} << 10U;
  static constexpr auto kUntouched = std::byte{0xFF};

  bool put(std::uint64_t epoch, Range part, std::size_t room = kRoom) {
    for (std::size_t at = 0; at < part.bytes; ++at) source_[part.offset + at] = byte_of(epoch, at);
    const CrossMemory target{::getpid(), reinterpret_cast<std::uintptr_t>(target_.data() + part.offset)};
    return copy_.put(epoch, part, source_.data() + part.offset, {bounce_.data(), room}, target, sender_, wake_);
  }
  std::size_t take(std::uint64_t epoch) { return copy_.take(epoch, target_.data(), bounce_.data(), kSlot); }
  void expect_arrived(std::uint64_t epoch, Range part) {
    for (std::size_t at = 0; at < part.bytes; ++at)
      ASSERT_EQ(target_[part.offset + at], byte_of(epoch, at)) << "byte " << at << " of epoch " << epoch;
  }
  std::size_t untouched() const {
    return static_cast<std::size_t>(std::count(target_.begin(), target_.end(), kUntouched));
  }
  static std::byte byte_of(std::uint64_t epoch, std::size_t at) {
    return static_cast<std::byte>((epoch * 31 + at % 251) % 251);
  }

  std::vector<std::byte> source_ = std::vector<std::byte>(kSlot), target_ = std::vector<std::byte>(kSlot, kUntouched);
  std::vector<std::byte> bounce_ = std::vector<std::byte>(kSlot);
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
  enum Word : std::size_t { kOffset = 1, kBytes, kPiece, kRing, kBegin, kEnd };
  using Words = std::array<std::uint64_t, kEnd>;
  const auto take_with = [&](const std::vector<std::pair<Word, std::uint64_t>>& changes) {
    ASSERT_TRUE(put(1, {0, 100'000}));
    for (const auto& [word, value] : changes) reinterpret_cast<Words&>(copy_).at(word) = value;
    std::vector<std::byte> target(kSlot), bounce(kSlot);
    (void)copy_.take(1, target.data(), bounce.data(), kSlot);
  };
  for (const Word word : {kOffset, kBytes, kPiece, kRing, kBegin}) {
    for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{kSlot - 1}, ~std::uint64_t{0}})
      take_with({{word, value}});
  }
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 62U;                    // four times this is 0
  const std::uint64_t next = reinterpret_cast<Words&>(copy_).at(kBegin) + 7;  // of 7 pieces
  take_with({{kPiece, kHuge}, {kRing, 3}, {kBegin, next - 4}});
}

TEST_F(SharedCopies, fail_where_the_target_is_gone) {
  const CrossMemory nowhere{::getpid(), 4096};
  EXPECT_FALSE(copy_.put(1, {0, 100'000}, source_.data(), {bounce_.data(), 0}, nowhere, sender_, wake_));
  EXPECT_TRUE(sender_.failed());
}

}  // namespace
