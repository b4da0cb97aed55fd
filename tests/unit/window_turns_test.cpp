// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "backends/turns.hpp"

namespace {

using namespace std::chrono_literals;

/// Fails after 20 ms of a wait, as ends do after SLUICE_TIMEOUT.
class TargetThatGivesUp : public sluice::device::Watch {
 public:
  void fail(sluice::Code code, const std::string&) noexcept override {
    set_failed();
    why = code;
  }
  sluice::base::Clock::duration waited(const sluice::device::Wait&, sluice::base::Clock::duration so_far,
                                       sluice::Timeout, sluice::base::WaitNote&) noexcept override {
    if (so_far > 20ms) fail(sluice::Code::timeout, "");
    return 1ms;
  }
  sluice::Code why{};
};

class WindowTurn : public testing::Test {
 protected:
  using Turns = sluice::backends::Turns;

  /// Calls `work()` while rank 1 has its turn.
  template <class Work>
  void in_turn_of_one(Work work) {
    TargetThatGivesUp holder;
    EXPECT_TRUE(Turns(word_, 1).take({}, holder, sluice::kForever, work));
  }
  bool take(sluice::Timeout limit = sluice::kForever) {
    return Turns(word_, 2).take({}, other_, limit, [] {});
  }

  sluice::base::Word word_;
  TargetThatGivesUp other_;
};

TEST_F(WindowTurn, is_awaited_up_to_a_limit_which_fails_nothing) {
  in_turn_of_one([&] { EXPECT_FALSE(take(1ms)); });
  EXPECT_FALSE(other_.failed());
  EXPECT_TRUE(take());
}

TEST_F(WindowTurn, is_awaited_as_long_as_other_words) {
  in_turn_of_one([&] { EXPECT_FALSE(take()); });
  EXPECT_EQ(other_.why, sluice::Code::timeout);
}

/// The owner may have ended all turns of that rank already.
TEST_F(WindowTurn, is_not_for_a_target_that_has_failed) {
  other_.fail(sluice::Code::closed, "");
  EXPECT_FALSE(take());
  in_turn_of_one([] {});
}

TEST_F(WindowTurn, that_the_owner_has_ended_ends_no_other) {
  TargetThatGivesUp third;
  in_turn_of_one([&] {
    Turns::end_that_of(word_, 1);
    EXPECT_TRUE(take());
    word_.value = 1 + 3;  // rank 3 has the turn
  });
  EXPECT_FALSE(Turns(word_, 2).take({}, third, 1ms, [] {}));
  Turns::end_that_of(word_, 3);
  EXPECT_TRUE(take());
}

}  // namespace
