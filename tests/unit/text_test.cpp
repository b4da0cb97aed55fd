// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include "tests/unit/locale.hpp"
#include "tests/unit/program.hpp"

#include <sluice/sluice.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>
#include <string>

namespace {

using namespace std::chrono_literals;
using sluice::base::decimal;
using sluice::base::duration_text;
using sluice::base::hexadecimal;
using sluice::base::json_text;

TEST(Text, of_numbers_has_as_many_digits_as_are_asked_for) {
  EXPECT_EQ(decimal(2.5, 1), "2.5");
  EXPECT_EQ(decimal(1234567.0625, 3), "1234567.062");
  EXPECT_EQ(decimal(-0.04, 2), "-0.04");
  EXPECT_EQ(decimal(std::numeric_limits<double>::max(), 3).size(), 313U);
  EXPECT_EQ(hexadecimal(0), "0");
  EXPECT_EQ(hexadecimal(255, 4), "00ff");
  EXPECT_EQ(hexadecimal(~0ULL, 4), "ffffffffffffffff");
}

TEST(Text, of_a_duration_says_what_was_set) {
  EXPECT_EQ(duration_text(2500ms), "2.5 s");
  EXPECT_EQ(duration_text(60s), "60 s");
  EXPECT_EQ(duration_text(24h), "86400 s");
  EXPECT_EQ(duration_text(40ms), "40 ms");
  EXPECT_EQ(duration_text(40123us), "40.1 ms");
  EXPECT_EQ(duration_text(1500ns), "1.5 us");
  EXPECT_EQ(duration_text(7ns), "7 ns");
  EXPECT_EQ(duration_text(0ns), "0 ns");
  EXPECT_EQ(duration_text(std::chrono::nanoseconds::max()), "9223372037 s");
}

TEST(Text, is_the_same_in_every_locale) {
  const sluice::tests::DecimalComma locale;
  sluice::tests::Program program([&] {
    locale.use();
    const bool same =
        decimal(1234.5, 2) == "1234.50" && duration_text(2500ms) == "2.5 s" && std::to_string(1.5) == "1,500000";
    return same && !testing::Test::HasFailure() ? 0 : 1;
  });
  EXPECT_EQ(program.result().code, 0);
}

TEST(Text, of_an_error_says_the_limit_that_was_set) {
  const sluice::tests::DecimalComma locale;
  sluice::tests::Program program([&] {
    locale.use();
    sluice::run_threads(1, [](sluice::Context& context) {
      for (const auto limit : {40ms, 1500ms}) {
        const sluice::Memory memory = context.allocate(64);
        sluice::Receiver receiver = context.receiver(0, 1, memory.slice(0, 64));
        try {
          receiver.wait_connected(limit);
        } catch (const sluice::Error& error) {
          std::cerr << error.what() << '\n';
        }
      }
    });
    return 0;
  });
  const sluice::tests::Result result = program.result();
  for (const char* text : {"not connected after 40 ms:", "not connected after 1.5 s:"})
    EXPECT_TRUE(sluice::tests::contains(result.err, text)) << result.err;
}

TEST(Text, of_json_is_utf_8_whatever_is_put_in) {
  EXPECT_EQ(json_text("a \"b\" \\ \n\x01"), R"("a \"b\" \\ \u000a\u0001")");
  const std::string good = "z\u00e4hler \u20ac \U0001f600";
  EXPECT_EQ(json_text(good), '"' + good + '"');
  const std::string replaced = "\xef\xbf\xbd";
  EXPECT_EQ(json_text("caf\xe9"), "\"caf" + replaced + '"') << "Latin-1";
  EXPECT_EQ(json_text("\xe2\x82"), '"' + replaced + replaced + '"') << "cut off";
  EXPECT_EQ(json_text("\xc0\xaf"), '"' + replaced + replaced + '"') << "longer than need be";
  EXPECT_EQ(json_text("\xed\xa0\x80"), '"' + replaced + replaced + replaced + '"') << "half a pair of UTF-16";
  EXPECT_EQ(json_text("\xf4\x90\x80\x80"), '"' + replaced + replaced + replaced + replaced + '"') << "beyond Unicode";
  EXPECT_EQ(json_text("\xe2\"x"), '"' + replaced + R"(\"x")");
}

}  // namespace
