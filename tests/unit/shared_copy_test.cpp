// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
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
  static constexpr std::size_t kSlot = std::size_t{8} << 20U;

  bool put(std::uint64_t epoch, Range part) {
    for (std::size_t at = 0; at < part.bytes; ++at) source_[part.offset + at] = byte_of(epoch, at);
    const CrossMemory target{::getpid(), reinterpret_cast<std::uintptr_t>(target_.data() + part.offset)};
    return copy_.put(epoch, part, source_.data() + part.offset, target, sender_, wake_);
  }
  std::size_t help(std::uint64_t epoch) { return copy_.help(epoch, ::getpid(), target_.data(), kSlot, receiver_); }
  void expect_arrived(std::uint64_t epoch, Range part) {
    for (std::size_t at = 0; at < part.bytes; ++at)
      ASSERT_EQ(target_[part.offset + at], byte_of(epoch, at)) << "byte " << at << " of epoch " << epoch;
  }
  static std::byte byte_of(std::uint64_t epoch, std::size_t at) {
    return static_cast<std::byte>((epoch * 31 + at % 251) % 251);
  }

  std::vector<std::byte> source_ = std::vector<std::byte>(kSlot), target_ = std::vector<std::byte>(kSlot);
  SharedCopy copy_;
  EndThatFails sender_, receiver_;
  sluice::base::Parking wake_;
};

TEST_F(SharedCopies, are_done_by_the_sender_alone_if_nobody_waits) {
  std::uint64_t epoch = 0;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{8191}, std::size_t{8192}, std::size_t{100'001}, kSlot}) {
    const Range part{kSlot - bytes, bytes};
    ASSERT_TRUE(put(++epoch, part));
    expect_arrived(epoch, part);
    EXPECT_EQ(help(epoch), 0U) << "all is there";
  }
}

TEST_F(SharedCopies, are_shared_with_a_receiver_that_waits) {
  std::atomic<std::uint64_t> awaited{1};
  std::atomic<std::size_t> helped{0};
  constexpr std::uint64_t kEnd = 0;
  std::thread receiver([&] {
    for (std::uint64_t epoch = awaited; epoch != kEnd; epoch = awaited) helped += help(epoch);
  });
  constexpr std::uint64_t kMost = 2000;  // the receiver's thread may seldom get a core
  for (std::uint64_t epoch = 1; epoch <= kMost && (helped == 0 || epoch < 20); ++epoch) {
    const std::size_t bytes = kSlot / (epoch % 7 + 1) - epoch;
    const Range part{epoch, bytes};
    awaited = epoch;
    ASSERT_TRUE(put(epoch, part));
    expect_arrived(epoch, part);
  }
  awaited = kEnd;
  receiver.join();
  EXPECT_GT(helped.load(), 0U);
  EXPECT_FALSE(receiver_.failed()) << receiver_.why;
}

TEST_F(SharedCopies, of_another_epoch_are_left_alone) {
  ASSERT_TRUE(put(1, {0, 100'000}));
  EXPECT_EQ(help(2), 0U);
}

TEST_F(SharedCopies, fail_where_the_target_is_gone) {
  const CrossMemory nowhere{::getpid(), 4096};
  EXPECT_FALSE(copy_.put(1, {0, 100'000}, source_.data(), nowhere, sender_, wake_));
  EXPECT_TRUE(sender_.failed());
}

}  // namespace
