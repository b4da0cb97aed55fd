// SPDX-License-Identifier: Apache-2.0
#include "apps/life/rle.hpp"

#include "apps/common/usage_error.hpp"
#include "apps/life/options.hpp"
#include "apps/life/world.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace life {
namespace {

const std::vector<Point> kGlider = {{1, 0}, {2, 1}, {0, 2}, {1, 2}, {2, 2}};

Pattern read(const std::string& text) {
  std::istringstream in(text);
  return read_rle(in, "file.rle");
}

std::string message_of(const std::string& text) {
  try {
    read(text);
  } catch (const apps::UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Rle, reads_what_the_life_community_publishes) {
  const Pattern pattern =
      read("#N Glider\n#O Richard K. Guy\n#C a comment\nx = 3, y = 3, rule = B3/S23\nbob$2bo$3o!\n");
  EXPECT_EQ(pattern.nx, 3);
  EXPECT_EQ(pattern.ny, 3);
  EXPECT_EQ(pattern.rule, Rule{});
  EXPECT_EQ(pattern.cells, kGlider);
}

TEST(Rle, tolerates_how_headers_are_spaced) {
  for (const char* header :
       {"x=3,y=3,rule=B3/S23", "x = 3 , y = 3", "  x=3, y =3, rule = b3/s23  ", "x = 3, y = 3, rule = 23/3",
        "X = 3, Y = 3, RULE = B3/S23:T100,100", "x = 3, y = 3, rule = Life"}) {
    const Pattern pattern = read(std::string(header) + "\nbob$2bo$3o!");
    EXPECT_EQ(pattern.cells, kGlider) << header;
    EXPECT_EQ(pattern.rule.value_or(Rule{}), Rule{}) << header;
  }
}

TEST(Rle, a_header_may_be_missing) {
  const Pattern pattern = read("bob$2bo$3o!");
  EXPECT_EQ(pattern.nx, 3);
  EXPECT_EQ(pattern.ny, 3);
  EXPECT_FALSE(pattern.rule.has_value());
  EXPECT_EQ(pattern.cells, kGlider);
}

TEST(Rle, lines_may_break_anywhere) { EXPECT_EQ(read("x = 3, y = 3\r\nbo\r\nb$2\nbo\n$\n\n3 o !").cells, kGlider); }

TEST(Rle, text_after_the_end_is_left_alone) {
  EXPECT_EQ(read("x = 3, y = 3\nbob$2bo$3o! and so on\nx = broken\n&&&").cells, kGlider);
}

TEST(Rle, counts_repeat_cells_and_rows) {
  const Pattern pattern = read("x = 12, y = 6\n10bo3$2o!");
  EXPECT_EQ(pattern.cells, (std::vector<Point>{{10, 0}, {0, 3}, {1, 3}}));
}

TEST(Rle, an_empty_pattern_is_a_pattern) {
  EXPECT_TRUE(read("x = 0, y = 0\n!").cells.empty());
  EXPECT_TRUE(read("!").cells.empty());
}

TEST(Rle, errors_name_file_and_line) {
  EXPECT_EQ(message_of("x = 3, y = 3\nbob$\n2bz$3o!"), "file.rle:3: unexpected 'z' (b, o, $, ! and counts are known)");
  EXPECT_EQ(message_of("#C\nx = 3, y = q\n!"), "file.rle:2: 'q' is no size of a pattern");
  EXPECT_EQ(message_of("x = 3, y = 3\nbob$2bo$3o\n"), "file.rle:2: the pattern ends without '!'");
}

TEST(Rle, refuses_what_is_malformed) {
  for (const char* text :
       {"", "x = 3\n!", "x = 3, y = 3, z = 3\n!", "x 3\n!", "x = 3, y = -3\n!", "x = 3, y = 3, rule = B9/S23\n!",
        "x = 3, y = 3, rule = nonsense\n!", "x = 3, y = 3\nx = 3, y = 3\n!", "x = 3, y = 3\n4o!", "x = 3, y = 3\n3$o!",
        "x = 3, y = 3\n0o!", "x = 3, y = 3\n3!", "999999999999999999999999o!", "x = 99999999999999999999, y = 1\n!",
        "<html>\n<body>!"})
    EXPECT_NE(message_of(text), "accepted") << text;
}

TEST(Rle, a_missing_file_is_an_error) { EXPECT_THROW(read_rle_file("no/such/file.rle"), apps::UsageError); }

TEST(Rle, what_is_written_reads_back) {
  const Index nx = 93;
  const Index ny = 41;
  std::vector<Cell> cells(static_cast<std::size_t>(nx * ny));
  std::vector<Point> alive;
  for (Index i = 0; i < nx * ny; ++i) {
    const bool dead_row = i / nx % 5 == 2;
    if (dead_row || (i * i + 7 * i) % 11 < 7) continue;
    cells[i] = 1;
    alive.push_back({i % nx, i / nx});
  }
  const Rule rule = parse_rule("B36/S125");
  const std::string text = to_rle(cells, nx, ny, rule);
  const Pattern back = read(text);
  EXPECT_EQ(back.nx, nx);
  EXPECT_EQ(back.ny, ny);
  EXPECT_EQ(back.rule, rule);
  EXPECT_EQ(back.cells, alive);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 70U);
}

TEST(Rle, a_row_may_be_as_long_as_a_world) {
  EXPECT_EQ(read("x = 1048577, y = 1\n1048577o!").cells.size(), 1048577U);
  EXPECT_NO_THROW(read("x = 16777216, y = 1\n16777215bo!"));
  EXPECT_THROW(read("x = 16777217, y = 1\no!"), apps::UsageError);
}

TEST(Rle, no_more_is_kept_than_the_world_has_cells) {
  for (const char* text : {"x = 11, y = 1\no!", "x = 1, y = 11\no!", "11o!", "10$11$o!"}) {
    std::istringstream in(text);
    EXPECT_THROW(read_rle(in, "pattern", {10, 10}), apps::UsageError) << text;
  }
}

std::vector<Cell> glider_at(const Point& at) {
  Options options;
  options.nx = options.ny = 10;
  options.pattern = std::string(SLUICE_PATTERNS) + "/glider.rle";
  options.at = at;
  std::vector<Cell> cells(100);
  populate(make_world(options), {.nx = 10, .ny = 10}, cells.data(), 10);
  return cells;
}

TEST(World, a_pattern_far_outside_comes_back_at_the_other_side) {
  using Limits = std::numeric_limits<Index>;
  EXPECT_EQ(glider_at({Limits::max(), 3}), glider_at({7, 3}));  // 9223372036854775807
  EXPECT_EQ(glider_at({4, Limits::min()}), glider_at({4, 2}));
  EXPECT_NE(glider_at({7, 3}), glider_at({4, 2}));
}

TEST(Rule, is_read_in_all_its_notations) {
  const Rule high_life = parse_rule("B36/S23");
  EXPECT_EQ(high_life.birth, 1U << 3 | 1U << 6);
  EXPECT_EQ(high_life.survival, 1U << 2 | 1U << 3);
  for (const char* text : {"b36/s23", "B36S23", "23/36", "S23/B36", "B36/S23:T64,64"})
    EXPECT_EQ(parse_rule(text), high_life) << text;
  EXPECT_EQ(parse_rule("B2/S"), (Rule{1U << 2, 0}));
  EXPECT_EQ(parse_rule("/2"), (Rule{1U << 2, 0}));
  EXPECT_EQ(rule_text(high_life), "B36/S23");
}

TEST(Rule, refuses_what_is_none) {
  for (const char* text : {"", "B3", "B3/23", "B9/S23", "S23/3", "3", "B3/S23x", "W110"})
    EXPECT_THROW(parse_rule(text), std::invalid_argument) << text;
}

}  // namespace
}  // namespace life
