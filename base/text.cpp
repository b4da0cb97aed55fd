// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace sluice::base {

namespace {

/// Returns the bytes of the UTF-8 character at the begin of the text; 0: there is none (Unicode 15, table 3-7).
std::size_t character(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const auto size = static_cast<std::size_t>(std::countl_one(first));
  if (size == 0) return 1;
  if (size == 1 || size > 4 || size > text.size()) return 0;
  std::uint32_t code = first & (0x7fU >> size);
  for (const char c : text.substr(1, size - 1)) {
    if ((c & 0xc0) != 0x80) return 0;
    code = code << 6 | (c & 0x3f);
  }
  static constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // that need so many bytes
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code >= kLeast[size] && code <= 0x10ffff && !surrogate ? size : 0;
}

}  // namespace

std::uint64_t hash(std::string_view text) noexcept {
  std::uint64_t value = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value;
}

std::vector<std::string_view> words_of(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const auto end = std::min(text.find(separator), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

std::string decimal(double value, int digits) {
  std::array<char, std::numeric_limits<double>::max_exponent10 + 64> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits);
  return {text.data(), written.ptr};
}

std::string hexadecimal(std::uint64_t value, int digits) {
  std::array<char, 16> text{};
  const auto* const end = std::to_chars(text.data(), text.data() + text.size(), value, 16).ptr;
  const auto length = static_cast<std::size_t>(end - text.data());
  return std::string(std::max(length, static_cast<std::size_t>(digits)) - length, '0').append(text.data(), length);
}

std::string duration_text(std::chrono::nanoseconds duration) {
  constexpr std::array<std::pair<double, const char*>, 4> kUnits{{{1e9, " s"}, {1e6, " ms"}, {1e3, " us"}, {1, " ns"}}};
  const auto nanoseconds = static_cast<double>(duration.count());
  const auto* const unit = std::find_if(kUnits.begin(), kUnits.end() - 1,
                                        [&](const auto& one) { return std::abs(nanoseconds) >= one.first; });
  const double value = nanoseconds / unit->first;
  std::string text = decimal(value, std::abs(value) < 10 ? 2 : std::abs(value) < 100 ? 1 : 0);
  if (text.find('.') != std::string::npos) text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + unit->second;
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t size = character(text);
    if (size == 0) {
      out += "\xef\xbf\xbd";
    } else if (static_cast<unsigned char>(text[0]) < ' ') {
      out += "\\u" + hexadecimal(static_cast<unsigned char>(text[0]), 4);
    } else {
      if (text[0] == '"' || text[0] == '\\') out += '\\';
      out += text.substr(0, size);
    }
    text.remove_prefix(std::max(size, std::size_t{1}));
  }
  return out + '"';
}

}  // namespace sluice::base
