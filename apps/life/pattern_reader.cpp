// SPDX-License-Identifier: Apache-2.0
#include "apps/common/usage_error.hpp"
#include "apps/life/draft.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace life {
namespace {

std::string contents(std::istream& in, const std::string& name) {
  std::string text;
  std::array<char, 1 << 16> block;
  while (in.read(block.data(), block.size()) || in.gcount() > 0)
    text.append(block.data(), static_cast<std::size_t>(in.gcount()));
  if (in.bad()) throw apps::UsageError(name + ": cannot be read");
  return text;
}

using Format = void (*)(Draft&);

// Recognised by the first line that is not empty: names of files are less reliable.
Format format_of(Draft& draft) {
  std::string_view line;
  while (draft.next(line) && trimmed(line).empty()) continue;
  line = trimmed(line);
  if (line.starts_with("\x1F\x8B")) draft.fail("the file is compressed by gzip (gunzip makes it one that can be read)");
  if (line.starts_with("[M2]")) draft.fail("macrocell files are not read (Golly writes such a pattern as RLE, too)");
  if (line.starts_with("#Life 1.05")) return read_life_105;
  if (line.starts_with("#Life 1.06")) return read_life_106;
  if (line.starts_with("#Life")) draft.fail("of files that begin with #Life, those of 1.05 and 1.06 are read");
  const bool is_row = !line.empty() && line.find_first_not_of(".O*") == std::string_view::npos;
  return line.starts_with('!') || is_row ? read_plaintext : read_rle;
}

}  // namespace

Pattern read_pattern(std::istream& in, const std::string& name, const Chosen& chosen) {
  const std::string text = contents(in, name);
  Draft draft(name, text, chosen);
  const Format read = format_of(draft);
  draft.rewind();
  read(draft);
  draft.take_size(draft.pattern.nx, draft.pattern.ny);
  return std::move(draft.pattern);
}

Pattern read_pattern_file(const std::string& name, const Chosen& chosen) {
  std::ifstream in(name, std::ios::binary);
  if (!in) throw apps::UsageError("cannot read " + name + ": " + std::strerror(errno));
  return read_pattern(in, name, chosen);
}

}  // namespace life
