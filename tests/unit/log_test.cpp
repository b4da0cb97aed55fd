// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include "tests/unit/program.hpp"

#include <gtest/gtest.h>

namespace {

using sluice::base::enabled;
using sluice::base::log;
using sluice::base::LogLevel;
using sluice::tests::Program;

TEST(Log, a_line_names_its_level_and_is_written_if_the_level_is_on) {
  Program program([] {
    log(LogLevel::error, "rank 1: one");
    log(LogLevel::warn, "two");
    log(LogLevel::info, "not yet");
    sluice::base::set_level(LogLevel::trace);
    log(LogLevel::info, "three");
    log(LogLevel::trace, "four");
    sluice::base::set_level(LogLevel::error);
    log(LogLevel::warn, "no longer");
    sluice::base::write_line("five");
    return 0;
  });
  EXPECT_EQ(program.result().err,
            "sluice: error: rank 1: one\nsluice: warn: two\nsluice: info: three\nsluice: trace: four\nfive\n");
}

TEST(Log, warnings_are_on_and_information_is_off_at_first) {
  EXPECT_TRUE(enabled(LogLevel::error));
  EXPECT_TRUE(enabled(LogLevel::warn));
  EXPECT_FALSE(enabled(LogLevel::info));
  EXPECT_FALSE(enabled(LogLevel::trace));
}

}  // namespace
