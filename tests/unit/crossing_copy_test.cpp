// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "backends/access.hpp"
#include "backends/put.hpp"
#include "base/crossing_copy.hpp"

namespace {

using sluice::base::crossing_copies_choose;
using sluice::base::CrossingChoice;
using sluice::base::CrossingCopy;
using sluice::base::CrossingWay;
using std::chrono::nanoseconds;

constexpr std::size_t kCopied = 16 * 1024;
constexpr std::uint32_t kTries = CrossingChoice::kWays * CrossingChoice::kRow;  // in a period
constexpr int kOthers = CrossingChoice::kPeriod - kTries;                       // behind them

/// The time of a copy by each way.
struct Times {
  nanoseconds c_library;
  nanoseconds past;
  nanoseconds in_one_core = c_library;
  nanoseconds of(CrossingWay way) const {
    return way == CrossingWay::c_library ? c_library : way == CrossingWay::as_in_one_core ? in_one_core : past;
  }
};

/// Copies for a period, and counts those by one way that are no tries.
int copies_in_a_period(CrossingWay by, CrossingChoice& choice, const Times& times, std::size_t bytes = kCopied) {
  int count = 0;
  for (std::uint32_t i = 0; i < CrossingChoice::kPeriod; ++i) {
    const CrossingChoice::Turn turn = choice.next(bytes);
    if (turn.timed) choice.took(turn.way, times.of(turn.way));
    count += static_cast<int>(turn.way == by && i >= kTries);
  }
  return count;
}
int past_in_a_period(CrossingChoice& choice, const Times& times, std::size_t bytes = kCopied) {
  return copies_in_a_period(CrossingWay::past_cache, choice, times, bytes);
}

TEST(CrossingWays, follow_what_was_faster_lately) {
  constexpr Times kFar{nanoseconds(7000), nanoseconds(300)};
  constexpr Times kSameCache{nanoseconds(300), nanoseconds(300)};
  CrossingChoice choice;
  EXPECT_EQ(past_in_a_period(choice, kFar), kOthers);
  EXPECT_EQ(past_in_a_period(choice, kSameCache), 0) << "the cores have changed";
  EXPECT_EQ(past_in_a_period(choice, kFar), kOthers) << "the cores have changed again";
}

TEST(CrossingWays, are_each_tried_in_a_row_in_every_period) {
  CrossingChoice choice;
  for (int period = 0; period < 2; ++period) {
    for (std::uint32_t i = 0; i < CrossingChoice::kPeriod; ++i) {
      const CrossingChoice::Turn turn = choice.next(kCopied);
      EXPECT_EQ(turn.timed, i < kTries && i % CrossingChoice::kRow >= CrossingChoice::kRow / 2) << i;
      if (!turn.timed) continue;
      EXPECT_EQ(turn.way, static_cast<CrossingWay>(i / CrossingChoice::kRow)) << i;
      choice.took(turn.way, nanoseconds(500));
    }
  }
}

/// The sender's time is not all: a reader gets lines from a near cache sooner than from memory.
TEST(CrossingWays, leave_the_cache_only_if_that_saves_more_than_the_reader_loses) {
  CrossingChoice near;
  EXPECT_EQ(past_in_a_period(near, {nanoseconds(900), nanoseconds(130)}, 8192), 0);
  CrossingChoice far;
  EXPECT_EQ(past_in_a_period(far, {nanoseconds(2100), nanoseconds(130)}, 8192), kOthers);
  CrossingChoice many;
  EXPECT_EQ(past_in_a_period(many, {nanoseconds(9300), nanoseconds(2700)}, 65536), kOthers);
  CrossingChoice unread;
  EXPECT_EQ(past_in_a_period(unread, {nanoseconds(1500), nanoseconds(2000)}, 65536), 0);
}

TEST(CrossingWays, go_as_in_one_core_where_that_is_faster) {
  const auto in_one_core = [](CrossingChoice& choice, const Times& times) {
    return copies_in_a_period(CrossingWay::as_in_one_core, choice, times, 8192);
  };
  CrossingChoice choice;
  EXPECT_EQ(in_one_core(choice, {nanoseconds(820), nanoseconds(130), nanoseconds(720)}), kOthers);
  CrossingChoice slower;
  EXPECT_EQ(in_one_core(slower, {nanoseconds(820), nanoseconds(130), nanoseconds(1200)}), 0);
  CrossingChoice much_slower_than_past;
  EXPECT_EQ(in_one_core(much_slower_than_past, {nanoseconds(5200), nanoseconds(130), nanoseconds(3300)}), 0);
}

/// One by each way that uses the cache.
TEST(CrossingWays, do_not_believe_a_copy_that_was_interrupted) {
  constexpr Times kSameCache{nanoseconds(300), nanoseconds(300)};
  for (int period = 0; period < 2; ++period) {
    CrossingChoice choice;
    for (int before = 0; before < period; ++before) past_in_a_period(choice, kSameCache);
    for (std::uint32_t i = 0; i < kTries; ++i) {
      const CrossingChoice::Turn turn = choice.next(kCopied);
      const bool interrupted = turn.way != CrossingWay::past_cache && i % CrossingChoice::kRow == 12;
      if (turn.timed) choice.took(turn.way, interrupted ? std::chrono::hours(1) : nanoseconds(300));
    }
    EXPECT_NE(choice.fastest(kCopied), CrossingWay::past_cache) << period;
  }
}

TEST(CrossingWays, take_any_time) {
  CrossingChoice choice;
  for (int period = 0; period < 3; ++period) past_in_a_period(choice, {nanoseconds::min(), nanoseconds::max()});
  EXPECT_EQ(choice.fastest(kCopied), CrossingWay::c_library);
  for (int period = 0; period < 40; ++period) past_in_a_period(choice, {nanoseconds::max(), nanoseconds::min()});
  EXPECT_EQ(choice.fastest(kCopied), CrossingWay::past_cache) << "no time is too short to grow";
}

/// Copies that may bypass the cache.
class CrossingCopies : public testing::Test {
 protected:
  CrossingCopies() { crossing_copies_choose = true; }
  ~CrossingCopies() override { crossing_copies_choose = before_; }

 private:
  const bool before_ = crossing_copies_choose;
};

/// All ways, since each is tried.
TEST_F(CrossingCopies, of_all_sizes_are_exact_at_every_alignment) {
  constexpr std::size_t kMost = 70'000;
  constexpr std::size_t kAround = 128;
  std::vector<std::byte> source(kMost + kAround);
  for (std::size_t at = 0; at < source.size(); ++at) source[at] = static_cast<std::byte>(at % 251);
  CrossingCopy copy;
  for (const std::size_t bytes : {std::size_t{4096}, std::size_t{4133}, std::size_t{65536 + 33}}) {
    for (std::size_t i = 0; i < kTries; ++i) {
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
  for (std::uint64_t epoch = 1; epoch <= kTries; ++epoch) put.enqueue({}, epoch, {0, slot_bytes});
  EXPECT_EQ(from, to);
  EXPECT_EQ(signal.value.load(), kTries);
  return put.describe();
}

/// Puts into a window, while it tries to go past the cache.
bool puts_of_windows_try(std::size_t bytes) {
  NeverFails watch;
  std::vector<std::byte> from(bytes, std::byte{7}), window(bytes + 8);
  sluice::device::Extent offered;
  offered.data = window.data(), offered.bytes = window.size();
  sluice::backends::MappedAccess access(offered, {}, watch, {}, "mapped");
  for (std::uint32_t i = 0; i <= 2 * CrossingChoice::kRow; ++i) access.put_now(8, from.data(), bytes);
  EXPECT_TRUE(std::equal(from.begin(), from.end(), window.begin() + 8));
  return access.past_cache_lately();
}

/// Fetches for writing.
std::vector<std::pair<const std::byte*, std::size_t>> g_fetched;

/// Puts whose fetches are noted, into slots of which the next has its credit, or has not.
class FetchesAhead : public CrossingCopies {
 protected:
  FetchesAhead() {
    g_fetched.clear();
    sluice::base::fetch_to_write = [](std::byte* at, std::size_t bytes) noexcept { g_fetched.emplace_back(at, bytes); };
  }
  ~FetchesAhead() override { sluice::base::fetch_to_write = before_; }

  static constexpr int kSlots = 3;
  static constexpr std::size_t kSlotBytes = 16384;

  class Credited final : public NeverFails {
   public:
    bool next_has_credit(std::uint64_t epoch) noexcept override {
      ++looks;
      return epoch <= last;
    }
    std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
    int looks = 0;
  };

  void put(std::uint64_t epoch, sluice::backends::Range part) { put_.enqueue({}, epoch, part); }
  const std::byte* slot(std::uint64_t epoch) const { return to_.data() + epoch % kSlots * kSlotBytes; }

  Credited watch_;

 private:
  static sluice::backends::Slots slots(std::vector<std::byte>& of) {
    sluice::backends::Slots slots{{}, kSlotBytes, kSlots};
    slots.memory.data = of.data();
    return slots;
  }

  const sluice::base::FetchToWrite before_ = sluice::base::fetch_to_write;
  std::vector<std::byte> from_ = std::vector<std::byte>(kSlots * kSlotBytes);
  std::vector<std::byte> to_ = std::vector<std::byte>(kSlots * kSlotBytes);
  sluice::base::Word signal_;
  sluice::base::Parking parking_;
  sluice::backends::MappedPut put_{slots(from_), slots(to_), {&signal_, &parking_, {}}, watch_, {}, "mapped"};
};

TEST_F(FetchesAhead, are_of_the_same_part_of_the_next_slot) {
  put(1, {128, 2048});
  put(2, {0, 8192});
  const std::vector<std::pair<const std::byte*, std::size_t>> expected = {{slot(2) + 128, 2048}, {slot(3), 8192}};
  EXPECT_EQ(g_fetched, expected);
  put(3, {0, 2047});
  put(4, {0, 8193});
  EXPECT_EQ(g_fetched, expected) << "of neither few bytes nor many";
}

TEST_F(FetchesAhead, leave_a_slot_that_the_receiver_has_not_released) {
  watch_.last = 2;
  put(1, {0, 2048});
  put(2, {0, 2048});
  EXPECT_EQ(g_fetched.size(), 1U);
}

TEST_F(FetchesAhead, of_few_bytes_look_for_no_credit) {
  put(1, {0, 2047});
  EXPECT_EQ(watch_.looks, 0);
  put(2, {0, 2048});
  EXPECT_EQ(watch_.looks, 1);
}

/// The last fetch of a way that goes by the cache comes before its last copy but one.
TEST_F(FetchesAhead, leave_what_goes_past_the_cache) {
  CrossingCopy copy;
  std::vector<std::byte> from(4096), to(4096);
  for (std::uint32_t i = 0; i < kTries; ++i) {
    copy(to.data(), from.data(), from.size());
    copy.fetch_ahead(to.data(), to.size());
  }
  EXPECT_GE(g_fetched.size(), 2 * CrossingChoice::kRow - 1);
  EXPECT_LE(g_fetched.size(), 2 * CrossingChoice::kRow);
}

sluice::base::Clock::time_point g_now;

/// Tries all ways, of which each takes the same time. Only fetches take longer. Calls `before(fetch, copy)`
/// before each try.
template <class Before>
bool goes_past_the_cache(Before before) {
  sluice::base::fetch_to_write = [](std::byte*, std::size_t) noexcept { g_now += std::chrono::milliseconds(1); };
  CrossingCopy crossing([] { return g_now += nanoseconds(100); });
  std::vector<std::byte> from(4096), to(4096);
  const auto copy = [&] { crossing(to.data(), from.data(), from.size()); };
  for (std::uint32_t i = 0; i < kTries; ++i) {
    before([&] { crossing.fetch_ahead(to.data(), to.size()); }, copy);
    copy();
  }
  copy();
  return crossing.past_cache_lately();
}

TEST_F(FetchesAhead, are_counted_as_part_of_their_copies) {
  EXPECT_FALSE(goes_past_the_cache([](auto, auto) {}));
  EXPECT_TRUE(goes_past_the_cache([](auto fetch, auto) { fetch(); }));
}

TEST_F(FetchesAhead, count_for_the_next_copy_alone) {
  EXPECT_FALSE(goes_past_the_cache([](auto fetch, auto copy) {
    fetch();
    crossing_copies_choose = false;
    copy();
    crossing_copies_choose = true;
  }));
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
