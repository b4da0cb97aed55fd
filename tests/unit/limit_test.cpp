// SPDX-License-Identifier: Apache-2.0
#include "base/limit.hpp"

#include <sluice/error.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "device/gpu.hpp"
#include "rma/patience.hpp"

namespace {

using namespace std::chrono_literals;
using sluice::Code;
using sluice::Error;
using sluice::Timeout;

constexpr Timeout kLimit = 64ms;

[[noreturn]] void fail_with(Code code) { throw Error(code, 0, 1, 0, 0, "of the test"); }

// A wait that lasts long counts as little as one that stood still, so each has to be short.
TEST(Limits, of_waits_one_after_the_other_are_one_limit) {
  sluice::base::Limit limit(kLimit);
  Timeout allowed{};
  while (!limit.over()) {
    sluice::rma::in_steps(limit, [&](Timeout step) {
      allowed += step;
      std::this_thread::sleep_for(step);
    });
  }
  EXPECT_LE(allowed, kLimit);
}

TEST(Limits, of_a_wait_in_steps_end_it_with_its_own_error) {
  sluice::base::Limit limit(kLimit);
  Timeout allowed{};
  int tries = 0;
  const auto wait = [&](Timeout step) {
    allowed += step;
    ++tries;
    std::this_thread::sleep_for(step);
    fail_with(Code::timeout);
  };
  EXPECT_THROW(sluice::rma::in_steps(limit, wait), Error);
  EXPECT_LE(allowed, kLimit);
  EXPECT_GE(tries, 2);
}

TEST(Limits, of_a_wait_in_steps_leave_other_errors_as_they_are) {
  sluice::base::Limit limit(kLimit);
  int tries = 0;
  const auto wait = [&](Timeout) {
    ++tries;
    fail_with(Code::peer_lost);
  };
  EXPECT_THROW(sluice::rma::in_steps(limit, wait), Error);
  EXPECT_EQ(tries, 1);
}

TEST(Limits, that_never_end_make_one_wait) {
  sluice::base::Limit limit(sluice::kForever);
  Timeout allowed{};
  sluice::rma::in_steps(limit, [&](Timeout step) { allowed = step; });
  EXPECT_EQ(allowed, sluice::kForever);
}

/// Asks how long the wait may go on, and fails at the end of the list.
class AskedWatch final : public sluice::device::Watch {
 public:
  explicit AskedWatch(std::vector<sluice::base::Clock::duration> asks) : asks_(std::move(asks)) {}
  void fail(Code, const std::string&) noexcept override { set_failed(); }
  sluice::base::Clock::duration waited(const sluice::device::Wait&, sluice::base::Clock::duration so_far, Timeout,
                                       sluice::base::WaitNote&) noexcept override {
    so_far_.push_back(so_far);
    if (so_far_.size() <= asks_.size()) return asks_[so_far_.size() - 1];
    set_failed();
    return {};
  }
  const std::vector<sluice::base::Clock::duration>& so_far() const { return so_far_; }

 private:
  const std::vector<sluice::base::Clock::duration> asks_;
  std::vector<sluice::base::Clock::duration> so_far_;
};

/// Turns that take as long as `turn`.
class CountedHelper final : public sluice::device::Helper {
 public:
  explicit CountedHelper(std::function<void()> turn = [] {}) : turn_(std::move(turn)) {}
  void help() noexcept override {
    ++helps_;
    turn_();
  }
  void look() noexcept override {}
  int helps() const { return helps_; }

 private:
  const std::function<void()> turn_;
  std::atomic<int> helps_{0};
};

sluice::device::Wait wait_for_ever() {
  static sluice::base::Word never;
  static sluice::base::Parking parking;
  return {&never, 1, &parking, 1};
}

TEST(Limits, of_a_wait_that_are_0_allow_one_turn_of_the_engine) {
  AskedWatch watch({});
  CountedHelper helper;
  sluice::device::wait({}, wait_for_ever(), watch, &helper);
  EXPECT_EQ(helper.helps(), 1);
}

TEST(Limits, of_a_wait_count_the_turns_of_the_engine_that_it_takes) {
  AskedWatch watch({5ms});
  CountedHelper helper([] { std::this_thread::sleep_for(1ms); });
  sluice::device::wait({}, wait_for_ever(), watch, &helper);
  ASSERT_EQ(watch.so_far().size(), 2U);
  EXPECT_EQ(watch.so_far()[0], 0ns);
  EXPECT_GE(watch.so_far()[1], 5ms);
  EXPECT_GT(helper.helps(), 1);
}

TEST(Limits, of_a_stream_that_is_destroyed_end_with_the_turn_of_the_engine) {
  AskedWatch watch({1h});
  std::atomic<bool> waits{false};
  sluice::HostStream::Impl* stream = nullptr;
  CountedHelper helper([&] {
    waits = true;
    while (!stream->ending()) std::this_thread::yield();
  });
  {
    sluice::HostStream host;
    stream = static_cast<sluice::HostStream::Impl*>(sluice::Stream::host(host).handle());
    sluice::device::on_host(
        stream, [&](sluice::device::Lane lane) { sluice::device::wait(lane, wait_for_ever(), watch, &helper); });
    while (!waits) std::this_thread::yield();
  }
  EXPECT_LE(helper.helps(), 2);
  EXPECT_TRUE(watch.failed());
}

}  // namespace
