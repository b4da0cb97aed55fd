// SPDX-License-Identifier: Apache-2.0
#include "apps/life/pattern.hpp"

namespace life {
namespace {

constexpr std::size_t kLongestLine = 70;  // the format's limit

class Writer {
 public:
  explicit Writer(std::string header) : text_(std::move(header)), line_begin_(text_.size()) {}

  void add(Index count, char tag) {
    const std::string token = (count > 1 ? std::to_string(count) : "") + tag;
    if (text_.size() - line_begin_ + token.size() > kLongestLine) {
      text_ += '\n';
      line_begin_ = text_.size();
    }
    text_ += token;
  }

  std::string finish() {
    add(1, '!');
    return text_ + '\n';
  }

 private:
  std::string text_;
  std::size_t line_begin_;
};

// The runs of a row; dead cells at its end are left out.
void add_row(Writer& writer, std::span<const Cell> row) {
  std::size_t begin = 0;
  for (std::size_t end = 1; end <= row.size(); ++end) {
    if (end < row.size() && row[end] == row[begin]) continue;
    const bool alive = row[begin] != 0;
    if (alive || end < row.size()) writer.add(static_cast<Index>(end - begin), alive ? 'o' : 'b');
    begin = end;
  }
}

bool is_empty(std::span<const Cell> row) {
  for (const Cell cell : row)
    if (cell != 0) return false;
  return true;
}

}  // namespace

std::string to_rle(std::span<const Cell> cells, Index nx, Index ny, const Rule& rule) {
  Writer writer("x = " + std::to_string(nx) + ", y = " + std::to_string(ny) + ", rule = " + rule_text(rule) + "\n");
  Index row_ends = 0;
  for (Index y = 0; y < ny; ++y) {
    const auto row = cells.subspan(static_cast<std::size_t>(y * nx), static_cast<std::size_t>(nx));
    if (!is_empty(row)) {
      if (row_ends > 0) writer.add(row_ends, '$');
      row_ends = 0;
      add_row(writer, row);
    }
    ++row_ends;
  }
  return writer.finish();
}

}  // namespace life
