// SPDX-License-Identifier: Apache-2.0
#include "apps/common/sizes.hpp"

#include "apps/common/usage_error.hpp"

#include <charconv>
#include <limits>

namespace apps {
namespace {

constexpr std::string_view kSuffixes = "kmg";

[[noreturn]] void refuse(std::string_view text) {
  throw UsageError("'" + std::string(text) + "' is no size (bytes, with k, m or g for powers of 1024)");
}

}  // namespace

std::size_t parse_size(std::string_view text) {
  std::size_t count = 0;
  const auto [number_end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view suffix(number_end, static_cast<std::size_t>(text.data() + text.size() - number_end));
  if (error != std::errc() || suffix.size() > 1) refuse(text);
  if (suffix.empty()) return count;
  const auto power = kSuffixes.find(static_cast<char>(suffix[0] | 0x20));
  if (power == std::string_view::npos) refuse(text);
  const auto shift = 10 * (power + 1);
  if (count > std::numeric_limits<std::size_t>::max() >> shift) refuse(text);
  return count << shift;
}

std::string size_text(std::size_t bytes) {
  for (std::size_t power = kSuffixes.size(); power > 0; --power) {
    const std::size_t unit = std::size_t{1} << (10 * power);
    if (bytes >= unit && bytes % unit == 0) return std::to_string(bytes / unit) + kSuffixes[power - 1];
  }
  return std::to_string(bytes);
}

}  // namespace apps
