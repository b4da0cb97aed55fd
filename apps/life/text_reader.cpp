// SPDX-License-Identifier: Apache-2.0
// Formats that show each cell: plaintext, Life 1.05 and Life 1.06.
#include "apps/life/draft.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace life {
namespace {

// Cells at any place. The pattern's corner is that of the smallest rectangle around them and the dead cells drawn with
// them.
class Canvas {
 public:
  explicit Canvas(Draft& draft) : draft_(draft) {}

  void move_to(const Point& at) { at_ = at; }

  // Adds a row of '.', and of '*' or 'O', and moves to the next row. An empty row is dead.
  void add_row(std::string_view row) {
    for (; !row.empty(); row.remove_prefix(1), ++at_.x) {
      if (row[0] != '.' && row[0] != '*' && row[0] != 'O')
        draft_.fail(fmt::format("unexpected '{}' in a row (., O and * are known)", row[0]));
      add(at_, row[0] != '.');
    }
  }

  void add(const Point& at, bool alive) {
    if (alive) draft_.pattern.cells.push_back(at);
    low_ = {std::min(low_.x, at.x), std::min(low_.y, at.y)};
    high_ = {std::max(high_.x, at.x + 1), std::max(high_.y, at.y + 1)};
  }

  void finish() {
    for (Point& cell : draft_.pattern.cells) cell = {cell.x - low_.x, cell.y - low_.y};
    if (high_.x > low_.x) draft_.take_size(high_.x - low_.x, high_.y - low_.y);
  }

 private:
  Draft& draft_;
  Point at_;
  Point low_ = {2 * kLargestSide, 2 * kLargestSide};
  Point high_ = {-2 * kLargestSide, -2 * kLargestSide};
};

std::string_view without_end(std::string_view line) {
  while (line.ends_with(' ') || line.ends_with('\t')) line.remove_suffix(1);
  return line;
}

// A line of Life 1.05 or 1.06 that starts with '#': a rule, or a comment.
void read_mark(Draft& draft, std::string_view line) {
  const char kind = line.size() > 1 ? line[1] : ' ';
  if (kind == 'R')
    draft.take_rule(trimmed(line.substr(2)));
  else if (std::string_view("CDLNO").find(kind) == std::string_view::npos)  // N: the normal rule, which is ours
    draft.fail(fmt::format("the line '{}' is not understood", line));
}

}  // namespace

void read_plaintext(Draft& draft) {
  Canvas canvas(draft);
  Index row = 0;
  for (std::string_view line; draft.next(line);) {
    if (line.starts_with('!')) continue;
    canvas.move_to({0, row++});
    canvas.add_row(without_end(line));
  }
  canvas.finish();
}

void read_life_105(Draft& draft) {
  Canvas canvas(draft);
  Point at;
  for (std::string_view line; draft.next(line);) {
    line = without_end(line);
    if (line.starts_with("#P")) {
      if (!read_point(line.substr(2), at)) draft.fail(fmt::format("'{}' is no position '#P X Y'", line));
    } else if (line.starts_with('#')) {
      read_mark(draft, line);
    } else {
      canvas.move_to(at);
      canvas.add_row(line);
      ++at.y;
    }
  }
  canvas.finish();
}

void read_life_106(Draft& draft) {
  Canvas canvas(draft);
  for (std::string_view line; draft.next(line);) {
    line = trimmed(line);
    Point at;
    if (line.empty()) continue;
    if (line.starts_with('#'))
      read_mark(draft, line);
    else if (read_point(line, at))
      canvas.add(at, true);
    else
      draft.fail(fmt::format("'{}' is no position 'X Y'", line));
  }
  canvas.finish();
}

}  // namespace life
