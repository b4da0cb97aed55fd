// SPDX-License-Identifier: Apache-2.0
#include "apps/life/pattern.hpp"

#include "apps/common/usage_error.hpp"
#include "apps/life/options.hpp"
#include "apps/life/world.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace life {
namespace {

const std::vector<Point> kGlider = {{1, 0}, {2, 1}, {0, 2}, {1, 2}, {2, 2}};

constexpr Chosen kAnyWorld = {.nx = kLargestSide, .ny = kLargestSide};

Pattern read(const std::string& text, const Chosen& chosen = kAnyWorld) {
  std::istringstream in(text);
  return read_pattern(in, "file.rle", chosen);
}

Rule rule_of(const std::string& text, const Chosen& chosen = kAnyWorld) {
  return read(text, chosen).rule.value_or(StatedRule{}).rule;
}

std::string message_of(const std::string& text, const Chosen& chosen = kAnyWorld) {
  try {
    read(text, chosen);
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
  EXPECT_EQ(pattern.rule.value().rule, Rule{});
  EXPECT_EQ(pattern.cells, kGlider);
}

TEST(Rle, tolerates_how_headers_are_spaced) {
  for (const char* header : {"x=3,y=3,rule=B3/S23", "x = 3 , y = 3", "  x=3, y =3, rule = b3/s23  ",
                             "x = 3, y = 3, rule = 23/3", "X = 3, Y = 3, RULE = B3/S23", "x = 3, y = 3, rule = Life"}) {
    const std::string text = std::string(header) + "\nbob$2bo$3o!";
    EXPECT_EQ(read(text).cells, kGlider) << header;
    EXPECT_EQ(rule_of(text), Rule{}) << header;
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

TEST(Rle, a_missing_file_is_an_error) { EXPECT_THROW(read_pattern_file("no/such/file.rle", {}), apps::UsageError); }

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
  EXPECT_EQ(back.rule.value().rule, rule);
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
    EXPECT_THROW(read(text, {.nx = 10, .ny = 10}), apps::UsageError) << text;
  }
}

TEST(Rle, a_comment_may_name_the_rule) {
  EXPECT_EQ(rule_of("#r B36/S23\nbo!"), parse_rule("B36/S23"));
  EXPECT_EQ(rule_of("#r 23/36\nx = 2, y = 1\nbo!"), parse_rule("B36/S23"));
  EXPECT_EQ(rule_of("#r B36/S23\nx = 2, y = 1, rule = B36/S23\nbo!"), parse_rule("B36/S23"));
  EXPECT_EQ(rule_of("#R -1 -20\n#rather free text\nbo!"), Rule{});  // a position, and a comment
  EXPECT_EQ(message_of("#r B36/S23\nx = 2, y = 1, rule = B3/S23\nbo!"), "file.rle:2: 'B3/S23' is a second rule");
  EXPECT_EQ(message_of("#r W110\nbo!"), "file.rle:1: 'W110' is no rule such as B3/S23");
}

TEST(Rle, a_state_beyond_two_is_refused) {
  for (const char* body : {"B!", "A.2C!", "pA!", "2X!", "O!"})
    EXPECT_NE(message_of("x = 9, y = 1, rule = B3/S23\n" + std::string(body)).find("more than two states"),
              std::string::npos)
        << body;
}

TEST(Rle, the_chosen_rule_overrides_one_that_is_not_understood) {
  const Chosen chosen{.nx = 9, .ny = 9, .rule = StatedRule{.rule = parse_rule("B36/S23")}};
  for (const char* rule : {"345/2/4", "LifeHistory", "B3/S23:P30,20"}) {
    const std::string text = "#r " + std::string(rule) + "\nx = 3, y = 3, rule = " + rule + "\nbob$2bo$3o!";
    EXPECT_EQ(read(text, chosen).cells, kGlider) << rule;
    EXPECT_FALSE(read(text, chosen).rule.has_value()) << rule;
    EXPECT_NE(message_of(text), "accepted") << rule;
  }
}

TEST(Rle, a_torus_is_the_worlds_size_or_refused) {
  const std::string text = "x = 3, y = 3, rule = B3/S23:T30,20\nbob$2bo$3o!";
  for (const Chosen& chosen : {Chosen{}, Chosen{.nx = 30}, Chosen{.nx = 30, .ny = 20}})
    EXPECT_EQ(sides(chosen, read(text, chosen).rule), (Torus{30, 20}));
  const Chosen other_rule{.rule = StatedRule{.rule = parse_rule("B36/S23")}};
  EXPECT_EQ(sides(other_rule, read(text, other_rule).rule), (Torus{30, 20})) << "--rule leaves the torus";
  const Chosen other_torus{.rule = parse_stated_rule("B36/S23:T10,10")};
  EXPECT_EQ(sides(other_torus, read(text, other_torus).rule), (Torus{10, 10}));
  EXPECT_EQ(message_of(text, {.nx = 31}),
            "file.rle:1: 'B3/S23:T30,20' is for a torus of another size than the world's 31 x 20 (--nx, --ny)");
  EXPECT_NE(message_of("x = 40, y = 3, rule = B3/S23:T30,20\n!", {}), "accepted");
  EXPECT_NE(message_of("40o$\n#r B3/S23:T30,20\n!", {}), "accepted");
}

TEST(Pattern, lines_end_as_on_any_system) {
  for (const char* const end : {"\n", "\r\n", "\r"}) {
    const auto ended = [end](std::string text) {
      for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += std::string_view(end).size())
        text.replace(at, 1, end);
      return text;
    };
    EXPECT_EQ(read(ended("#C a\nx = 3, y = 3\nbob$2bo$\n3o!")).cells, kGlider);
    EXPECT_EQ(read(ended("!Name: a\n.O\n..O\nOOO\n")).cells, kGlider);
    EXPECT_EQ(message_of(ended("#C a\nx = 3, y = 3\n?")),
              "file.rle:3: unexpected '?' (b, o, $, ! and counts are known)");
  }
}

TEST(Pattern, plaintext_is_read) {
  for (const char* text :
       {"!Name: Glider\n!\n.O.\n..O\nOOO\n", ".O\n..O\nOOO\n!by somebody\n", "!\n\n.O. \n..*\n!\n***\n\n\n"}) {
    const Pattern pattern = read(text);
    EXPECT_EQ(pattern.cells, kGlider) << text;
    EXPECT_EQ(pattern.nx, 3) << text;
    EXPECT_EQ(pattern.ny, 3) << text;
  }
  EXPECT_EQ(read("O\n\n.O").cells, (std::vector<Point>{{0, 0}, {1, 2}}));
  EXPECT_EQ(message_of("!Name\n.O\n.o\n"), "file.rle:3: unexpected 'o' in a row (., O and * are known)");
  EXPECT_NE(message_of("OO\n", {.nx = 1, .ny = 1}), "accepted");
}

TEST(Pattern, life_1_05_is_read) {
  const Pattern pattern = read("#Life 1.05\n#D A glider\n#N\n#P -1 -1\n.*\n..*\n#P -1 1\n***\n");
  EXPECT_EQ(pattern.cells, kGlider);
  EXPECT_EQ(pattern.nx, 3);
  EXPECT_EQ(pattern.ny, 3);
  EXPECT_EQ(read("#Life 1.05\n#P 5 7\n*\n#P 2 7\n*").cells, (std::vector<Point>{{3, 0}, {0, 0}}));
  EXPECT_EQ(rule_of("#Life 1.05\n#R 23/36\n*"), parse_rule("B36/S23"));
  for (const char* line : {"#P 1", "#P 1 x", "#P 99999999999 0", "#R 9/3", "#I other.life", ".b"})
    EXPECT_NE(message_of("#Life 1.05\n" + std::string(line)), "accepted") << line;
}

TEST(Pattern, life_1_06_is_read) {
  const Pattern pattern = read("#Life 1.06\n0 -1\n1 0\n-1 1\n 0\t1\n1 1\n");
  EXPECT_EQ(pattern.cells, kGlider);
  EXPECT_EQ(pattern.nx, 3);
  EXPECT_EQ(pattern.ny, 3);
  for (const char* line : {"1", "1 2 3", "1,2", "99999999999 0", ".O", "#I other.life"})
    EXPECT_NE(message_of("#Life 1.06\n" + std::string(line)), "accepted") << line;
}

TEST(Pattern, formats_that_are_not_read_are_refused_by_name) {
  EXPECT_NE(message_of("\x1F\x8B\x08").find("gzip"), std::string::npos);
  EXPECT_NE(message_of("[M2] (golly 4.2)\n#R B3/S23\n$$..*$\n").find("macrocell"), std::string::npos);
  EXPECT_NE(message_of("#Life 1.07\n").find("#Life"), std::string::npos);
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

TEST(World, is_as_large_as_the_rules_torus) {
  Options options;
  const auto parsed = [&options](std::initializer_list<const char*> arguments) {
    std::vector<const char*> line = {"life"};
    line.insert(line.end(), arguments);
    options = {};
    return parse(static_cast<int>(line.size()), line.data(), options);
  };
  ASSERT_TRUE(parsed({"--rule", "B36/S23:T30,20"}).run);
  const World world = make_world(options);
  EXPECT_EQ(world.nx, 30);
  EXPECT_EQ(world.ny, 20);
  EXPECT_EQ(world.rule, parse_rule("B36/S23"));
  EXPECT_TRUE(parsed({"--nx", "30", "--rule", "B3/S23:T30,20"}).run);
  EXPECT_EQ(parsed({"--rule", "B3/S23:T30,20", "-n", "30"}).exit_code, 2);
  EXPECT_EQ(parsed({"--rule", "B3/S23:P30,20"}).exit_code, 2);
  ASSERT_TRUE(parsed({}).run);
  EXPECT_EQ(make_world(options).nx, 128);
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
  for (const char* text : {"b36/s23", "B36S23", "23/36", "S23/B36"}) EXPECT_EQ(parse_rule(text), high_life) << text;
  EXPECT_EQ(parse_rule("B2/S"), (Rule{1U << 2, 0}));
  EXPECT_EQ(parse_rule("/2"), (Rule{1U << 2, 0}));
  EXPECT_EQ(rule_text(high_life), "B36/S23");
}

TEST(Rule, refuses_what_is_none) {
  for (const char* text : {"", "B3", "B3/23", "B9/S23", "S23/3", "3", "B3/S23x", "W110"})
    EXPECT_THROW(parse_stated_rule(text), std::invalid_argument) << text;
}

TEST(Rule, may_be_for_a_torus_and_for_no_other_grid) {
  EXPECT_FALSE(parse_stated_rule("B3/S23").torus.has_value());
  for (const char* text : {"B3/S23:T30,20", "23/3:t30,20"})
    EXPECT_EQ(parse_stated_rule(text).torus, (Torus{30, 20})) << text;
  for (const char* grid : {":P30,20", ":K30,20", ":K30*,20", ":C30,20", ":S30", ":T30+1,20", ":T30,20-2", ":T0,20",
                           ":T30", ":T", ":", ":T30,20,1", ":T-3,3", ":T99999999,1"})
    EXPECT_THROW(parse_stated_rule("B3/S23" + std::string(grid)), std::invalid_argument) << grid;
}

}  // namespace
}  // namespace life
