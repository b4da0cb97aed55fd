// SPDX-License-Identifier: Apache-2.0
#include "apps/life/draft.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace life {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Reader {
 public:
  explicit Reader(Draft& draft) : draft_(draft) {}

  void read() {
    for (std::string_view line; !ended_ && draft_.next(line);) read_line(trimmed(line));
    if (!ended_) fail("the pattern ends without '!'");
    if (!has_header_) draft_.take_size(widest_, cells().empty() ? 0 : cells().back().y + 1);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { draft_.fail(what); }

  std::vector<Point>& cells() { return draft_.pattern.cells; }

  void read_line(std::string_view line) {
    if (line.empty()) return;
    if (line[0] == '#') {
      read_mark(line);
      return;
    }
    if (!in_body_ && (line[0] == 'x' || line[0] == 'X')) {
      if (has_header_) fail("a second header");
      read_header(line);
      return;
    }
    in_body_ = true;
    read_body(line);
  }

  // "#r B36/S23" is the rule. "#R X Y" is the place of the pattern, which --at decides here.
  void read_mark(std::string_view line) {
    if (line.size() < 3 || (line[1] != 'r' && line[1] != 'R') || !is_space(line[2])) return;
    Point position;
    if (!read_point(line.substr(2), position)) draft_.take_rule(trimmed(line.substr(2)));
  }

  // "x = 3, y = 3, rule = B3/S23". The rule is last, because its grid suffix may have commas in it.
  void read_header(std::string_view line) {
    has_header_ = true;
    bool has_y = false;
    while (!line.empty()) {
      const auto equals = line.find('=');
      if (equals == std::string_view::npos) fail("the header is not 'x = ..., y = ..., rule = ...'");
      const std::string_view key = trimmed(line.substr(0, equals));
      line.remove_prefix(equals + 1);
      const bool is_rule = key == "rule" || key == "RULE" || key == "Rule";
      const auto comma = is_rule ? std::string_view::npos : line.find(',');
      const std::string_view value = trimmed(line.substr(0, comma));
      line.remove_prefix(comma == std::string_view::npos ? line.size() : comma + 1);
      has_y = has_y || key == "y" || key == "Y";
      set(key, value, is_rule);
    }
    if (!has_y) fail("the header does not give y");
    draft_.take_size(header_.x, header_.y);
  }

  void set(std::string_view key, std::string_view value, bool is_rule) {
    if (is_rule) {
      draft_.take_rule(value);
    } else if (key == "x" || key == "X") {
      header_.x = side(value);
    } else if (key == "y" || key == "Y") {
      header_.y = side(value);
    } else {
      fail(fmt::format("the header has an unknown part '{}'", key));
    }
  }

  Index side(std::string_view text) const {
    Index value = 0;
    for (const char c : text) {
      if (!is_digit(c) || value > kLargestSide) fail(fmt::format("'{}' is no size of a pattern", text));
      value = 10 * value + (c - '0');
    }
    if (text.empty() || value > kLargestSide) fail(fmt::format("'{}' is no size of a pattern", text));
    return value;
  }

  void read_body(std::string_view line) {
    for (const char c : line) {
      if (is_space(c)) continue;
      if (is_digit(c)) {
        add_digit(c);
        continue;
      }
      if (c == '!') {
        if (counting_) fail("a count before '!'");
        ended_ = true;
        return;
      }
      if (counting_ && count_ == 0) fail("a count of 0");
      apply(c, counting_ ? count_ : 1);
      counting_ = false;
      count_ = 0;
    }
  }

  void add_digit(char digit) {
    counting_ = true;
    count_ = 10 * count_ + (digit - '0');
    if (count_ > kLargestSide) fail("a count is too large");
  }

  void apply(char tag, Index count) {
    switch (tag) {
      case '$': at_ = {0, at_.y + count}; return;
      case 'b':
      case '.': at_.x += count; return;
      case 'o':
      case 'A': add_cells(count); return;
      default: break;
    }
    // B to X are the states 2 to 24; p to y before one of A to X add 24, 48, ...
    if ((tag >= 'B' && tag <= 'X') || (tag >= 'p' && tag <= 'y'))
      fail(fmt::format("'{}' is of a rule with more than two states (of two, b, o, . and A are known)", tag));
    fail(fmt::format("unexpected '{}' (b, o, $, ! and counts are known)", tag));
  }

  void add_cells(Index count) {
    const Torus world = draft_.world();
    const Index most_x = has_header_ ? header_.x : world.nx;
    const Index most_y = has_header_ ? header_.y : world.ny;
    if (at_.x + count > most_x || at_.y >= most_y)
      fail(fmt::format("a live cell at column {}, row {} is outside of {} x {}", at_.x + count, at_.y + 1, most_x,
                       most_y));
    for (const Index end = at_.x + count; at_.x < end; ++at_.x) cells().push_back(at_);
    widest_ = std::max(widest_, at_.x);
  }

  Draft& draft_;
  Point header_;
  bool has_header_ = false;
  bool in_body_ = false;
  bool ended_ = false;
  bool counting_ = false;
  Index count_ = 0;
  Point at_;
  Index widest_ = 0;
};

}  // namespace

void read_rle(Draft& draft) { Reader(draft).read(); }

}  // namespace life
