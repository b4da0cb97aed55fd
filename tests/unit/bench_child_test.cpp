// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/child.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace bench {
namespace {

std::string why_silent(Child& child) {
  try {
    return "it says " + child.read_line();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST(Child, answers_lines_one_by_one) {
  Child child({"/bin/sh", "-c", "while read word; do echo you said $word; echo and more; done"});
  for (const char* word : {"one", "two"}) {
    child.write_line(word);
    EXPECT_EQ(child.read_line(), std::string("you said ") + word);
    EXPECT_EQ(child.read_line(), "and more");
  }
}

TEST(Child, that_has_ended_says_how) {
  Child refused({"/bin/sh", "-c", "echo last words; exit 3"});
  EXPECT_EQ(refused.read_line(), "last words");
  EXPECT_EQ(why_silent(refused), "it has ended, with exit code 3");
  refused.write_line("is anybody there?");
  Child killed({"/bin/sh", "-c", "kill -11 $$"});
  EXPECT_EQ(why_silent(killed), "it has ended, by signal 11");
}

TEST(Child, that_cannot_be_started_is_an_error) { EXPECT_THROW(Child({"/no/such/program"}), std::runtime_error); }

}  // namespace
}  // namespace bench
