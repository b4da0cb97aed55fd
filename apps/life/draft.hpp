// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/life/pattern.hpp"

#include <string>
#include <string_view>

namespace life {

/// A pattern while its file is read: the lines that are left, the size of the world, and the result so far.
class Draft {
 public:
  /// @param text  the whole file, which outlives this
  Draft(std::string name, std::string_view text, const Chosen& chosen);

  /// The next line, without its end; false if there is none.
  bool next(std::string_view& line);
  /// Begins with the first line again.
  void rewind();
  [[noreturn]] void fail(const std::string& what) const;

  /// Keeps the rule and the torus of a file. If the command line has chosen a rule, only the torus counts, and the rule
  /// need not be understood.
  void take_rule(std::string_view text);
  /// Sets the size of the pattern. @throws apps::UsageError if the world is smaller
  void take_size(Index nx, Index ny);
  /// The world, as far as it is known.
  Torus world() const;

  Pattern pattern;

 private:
  std::string name_;
  std::string_view text_;
  std::string_view rest_;
  Chosen chosen_;
  Index line_ = 0;
};

bool is_space(char c);

/// `text` without the spaces at both ends.
std::string_view trimmed(std::string_view text);

/// Reads "X Y", each no further from 0 than kLargestSide. Returns false for anything else.
bool read_point(std::string_view text, Point& point);

void read_rle(Draft& draft);
void read_plaintext(Draft& draft);
void read_life_105(Draft& draft);
void read_life_106(Draft& draft);

}  // namespace life
