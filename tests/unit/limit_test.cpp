// SPDX-License-Identifier: Apache-2.0
#include "base/limit.hpp"

#include <sluice/error.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

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

}  // namespace
