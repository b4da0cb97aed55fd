// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/access.hpp"
#include "backends/put.hpp"
#include "base/crossing_copy.hpp"

namespace {

using sluice::base::crossing_copies_choose;
using sluice::base::CrossingCopy;
using sluice::base::CrossingWay;
using std::chrono::nanoseconds;

constexpr std::size_t kCopied = 16 * 1024;
constexpr int kOthers = CrossingWay::kPeriod - 2 * CrossingWay::kRow;  // in a period, behind the tries

/// The time of a copy by each way.
struct Times {
  nanoseconds cached;
  nanoseconds past;
};

/// Copies for a period, and counts those past the cache that are no tries.
int past_in_a_period(CrossingWay& way, const Times& times, std::size_t bytes = kCopied) {
  int past = 0;
  for (std::uint32_t i = 0; i < CrossingWay::kPeriod; ++i) {
    const CrossingWay::Turn turn = way.next(bytes);
    if (turn.timed) way.took(turn.past_cache, turn.past_cache ? times.past : times.cached);
    past += static_cast<int>(turn.past_cache && i >= 2 * CrossingWay::kRow);
  }
  return past;
}

TEST(CrossingWays, follow_what_was_faster_lately) {
  constexpr Times kFar{nanoseconds(7000), nanoseconds(300)};
  constexpr Times kSameCache{nanoseconds(300), nanoseconds(300)};
  CrossingWay way;
  EXPECT_EQ(past_in_a_period(way, kFar), kOthers);
  EXPECT_EQ(past_in_a_period(way, kSameCache), 0) << "the cores have changed";
  EXPECT_EQ(past_in_a_period(way, kFar), kOthers) << "the cores have changed again";
}

TEST(CrossingWays, are_each_tried_in_a_row_in_every_period) {
  CrossingWay way;
  for (int period = 0; period < 2; ++period) {
    for (std::uint32_t i = 0; i < CrossingWay::kPeriod; ++i) {
      const CrossingWay::Turn turn = way.next(kCopied);
      EXPECT_EQ(turn.timed, i < 2 * CrossingWay::kRow && i % CrossingWay::kRow >= CrossingWay::kRow / 2) << i;
      if (!turn.timed) continue;
      EXPECT_EQ(turn.past_cache, i >= CrossingWay::kRow) << i;
      way.took(turn.past_cache, nanoseconds(500));
    }
  }
}

/// The sender's time is not all: a reader gets lines from a near cache sooner than from memory.
TEST(CrossingWays, leave_the_cache_only_if_that_saves_more_than_the_reader_loses) {
  CrossingWay near;
  EXPECT_EQ(past_in_a_period(near, {nanoseconds(900), nanoseconds(130)}, 8192), 0);
  CrossingWay far;
  EXPECT_EQ(past_in_a_period(far, {nanoseconds(2100), nanoseconds(130)}, 8192), kOthers);
  CrossingWay many;
  EXPECT_EQ(past_in_a_period(many, {nanoseconds(9300), nanoseconds(2700)}, 65536), kOthers);
  CrossingWay unread;
  EXPECT_EQ(past_in_a_period(unread, {nanoseconds(1500), nanoseconds(2000)}, 65536), 0);
}

TEST(CrossingWays, do_not_believe_a_copy_that_was_interrupted) {
  constexpr Times kSameCache{nanoseconds(300), nanoseconds(300)};
  for (int period = 0; period < 2; ++period) {
    CrossingWay way;
    for (int before = 0; before < period; ++before) past_in_a_period(way, kSameCache);
    for (std::uint32_t i = 0; i < 2 * CrossingWay::kRow; ++i) {
      const CrossingWay::Turn turn = way.next(kCopied);
      if (turn.timed) way.took(turn.past_cache, i == 12 ? std::chrono::hours(1) : nanoseconds(300));
    }
    EXPECT_FALSE(way.past_cache_is_faster(kCopied)) << period;
  }
}

TEST(CrossingWays, take_any_time) {
  CrossingWay way;
  for (int period = 0; period < 3; ++period) past_in_a_period(way, {nanoseconds::min(), nanoseconds::max()});
  EXPECT_FALSE(way.past_cache_is_faster(kCopied));
  for (int period = 0; period < 40; ++period) past_in_a_period(way, {nanoseconds::max(), nanoseconds::min()});
  EXPECT_TRUE(way.past_cache_is_faster(kCopied)) << "no time is too short to grow";
}

/// Copies that may bypass the cache.
class CrossingCopies : public testing::Test {
 protected:
  CrossingCopies() { crossing_copies_choose = true; }
  ~CrossingCopies() override { crossing_copies_choose = before_; }

 private:
  const bool before_ = crossing_copies_choose;
};

/// Both ways, since each is tried.
TEST_F(CrossingCopies, of_all_sizes_are_exact_at_every_alignment) {
  constexpr std::size_t kMost = 70'000;
  constexpr std::size_t kAround = 128;
  std::vector<std::byte> source(kMost + kAround);
  for (std::size_t at = 0; at < source.size(); ++at) source[at] = static_cast<std::byte>(at % 251);
  CrossingCopy copy;
  for (const std::size_t bytes : {std::size_t{4096}, std::size_t{4133}, std::size_t{65536 + 33}}) {
    for (std::size_t i = 0; i < std::size_t{3} * CrossingWay::kRow; ++i) {
      std::vector<std::byte> target(kMost + kAround, std::byte{0xFF});
      const std::size_t to = i * 5 % 64, from = i % 33;
      copy(target.data() + to, source.data() + from, bytes);
      for (std::size_t at = 0; at < target.size(); ++at) {
        const bool copied = at >= to && at < to + bytes;
        ASSERT_EQ(target[at], copied ? source[at - to + from] : std::byte{0xFF}) << bytes << " bytes, " << i;
      }
    }
  }
}

class NeverFails : public sluice::device::Watch {
 public:
  void fail(sluice::Code, const std::string& what) noexcept override { ADD_FAILURE() << what; }
  sluice::base::Clock::duration waited(const sluice::device::Wait&, sluice::base::Clock::duration, sluice::Timeout,
                                       sluice::base::WaitNote&) noexcept override {
    return std::chrono::seconds(1);
  }
};

/// A channel's put, while it tries to go past the cache.
std::string description_of_a_try(std::size_t slot_bytes) {
  NeverFails watch;
  std::vector<std::byte> from(slot_bytes, std::byte{7}), to(slot_bytes);
  sluice::backends::Slots source{{}, slot_bytes, 1}, target{{}, slot_bytes, 1};
  source.memory.data = from.data();
  target.memory.data = to.data();
  sluice::base::Word signal;
  sluice::base::Parking parking;
  sluice::backends::MappedPut put(source, target, {&signal, &parking, {}}, watch, {}, "mapped");
  for (std::uint64_t epoch = 1; epoch <= CrossingWay::kRow + 1; ++epoch) put.enqueue({}, epoch, {0, slot_bytes});
  EXPECT_EQ(from, to);
  EXPECT_EQ(signal.value.load(), CrossingWay::kRow + 1);
  return put.describe();
}

/// Puts into a window, while it tries to go past the cache.
bool puts_of_windows_try(std::size_t bytes) {
  NeverFails watch;
  std::vector<std::byte> from(bytes, std::byte{7}), window(bytes + 8);
  sluice::device::Extent offered;
  offered.data = window.data(), offered.bytes = window.size();
  sluice::backends::MappedAccess access(offered, {}, watch, {}, "mapped");
  for (std::uint32_t i = 0; i <= CrossingWay::kRow; ++i) access.put_now(8, from.data(), bytes);
  EXPECT_TRUE(std::equal(from.begin(), from.end(), window.begin() + 8));
  return access.past_cache_lately();
}

TEST_F(CrossingCopies, are_those_of_long_puts_into_windows) {
  EXPECT_TRUE(puts_of_windows_try(CrossingCopy::kLeast));
  EXPECT_FALSE(puts_of_windows_try(CrossingCopy::kLeast - 1));
}

TEST_F(CrossingCopies, are_those_of_long_puts_unless_the_setting_forbids_it) {
  EXPECT_EQ(description_of_a_try(CrossingCopy::kLeast), "mapped, past the cache");
  EXPECT_EQ(description_of_a_try(CrossingCopy::kLeast - 1), "mapped");
  const std::size_t least = sluice::base::nontemporal_min;
  sluice::base::prepare_copies(least, false);
  EXPECT_EQ(description_of_a_try(CrossingCopy::kLeast), "mapped");
#if defined(__x86_64__) && !defined(SLUICE_TELLS_OF_RACES)
  sluice::base::prepare_copies(least, true);
  EXPECT_EQ(description_of_a_try(CrossingCopy::kLeast), "mapped, past the cache");
#endif
}

}  // namespace
