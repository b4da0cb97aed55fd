// SPDX-License-Identifier: Apache-2.0
#include "apps/common/usage_error.hpp"
#include "apps/life/rle.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string_view>

namespace life {
namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

class Reader {
 public:
  Reader(std::string name, const Point& world) : name_(std::move(name)), world_(world) {}

  Pattern read(std::istream& in) {
    std::string line;
    while (!ended_ && std::getline(in, line)) {
      ++line_;
      read_line(line_ == 1 ? without_mark(line) : line);
    }
    if (in.bad()) fail("cannot be read");
    if (!ended_) fail("the pattern ends without '!'");
    if (!has_header_) {
      pattern_.nx = widest_;
      pattern_.ny = pattern_.cells.empty() ? 0 : pattern_.cells.back().y + 1;
    }
    return std::move(pattern_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw apps::UsageError(fmt::format("{}:{}: {}", name_, line_, what));
  }

  // Some editors begin a file with a byte order mark.
  static std::string_view without_mark(std::string_view line) {
    if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
    return line;
  }

  void read_line(std::string_view line) {
    line = trimmed(line);
    if (line.empty() || line[0] == '#') return;
    if (!in_body_ && (line[0] == 'x' || line[0] == 'X')) {
      if (has_header_) fail("a second header");
      read_header(line);
      return;
    }
    in_body_ = true;
    read_body(line);
  }

  // "x = 3, y = 3, rule = B3/S23"; the rule is last, because its own grid suffix may have commas in it.
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
    if (pattern_.nx > world_.x || pattern_.ny > world_.y)
      fail(fmt::format("a pattern of {} x {} cells, more than the world's {} x {} (--nx, --ny)", pattern_.nx,
                       pattern_.ny, world_.x, world_.y));
  }

  void set(std::string_view key, std::string_view value, bool is_rule) {
    if (is_rule) {
      try {
        pattern_.rule = parse_rule(value);
      } catch (const std::invalid_argument& error) {
        fail(error.what());
      }
    } else if (key == "x" || key == "X") {
      pattern_.nx = side(value);
    } else if (key == "y" || key == "Y") {
      pattern_.ny = side(value);
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
      case 'B':
      case '.': at_.x += count; return;
      case 'o':
      case 'O':
      case 'A': add_cells(count); return;
      default: fail(fmt::format("unexpected '{}' (b, o, $, ! and counts are known)", tag));
    }
  }

  void add_cells(Index count) {
    const Index most_x = has_header_ ? pattern_.nx : world_.x;
    const Index most_y = has_header_ ? pattern_.ny : world_.y;
    if (at_.x + count > most_x || at_.y >= most_y)
      fail(fmt::format("a live cell at column {}, row {} is outside of {} x {}", at_.x + count, at_.y + 1, most_x,
                       most_y));
    for (const Index end = at_.x + count; at_.x < end; ++at_.x) pattern_.cells.push_back(at_);
    widest_ = std::max(widest_, at_.x);
  }

  std::string name_;
  Point world_;
  Pattern pattern_;
  Index line_ = 0;
  bool has_header_ = false;
  bool in_body_ = false;
  bool ended_ = false;
  bool counting_ = false;
  Index count_ = 0;
  Point at_;
  Index widest_ = 0;
};

}  // namespace

Pattern read_rle(std::istream& in, const std::string& name, const Point& world) { return Reader(name, world).read(in); }

Pattern read_rle_file(const std::string& name, const Point& world) {
  std::ifstream in(name, std::ios::binary);
  if (!in) throw apps::UsageError("cannot read " + name + ": " + std::strerror(errno));
  return read_rle(in, name, world);
}

}  // namespace life
