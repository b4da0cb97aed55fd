// SPDX-License-Identifier: Apache-2.0
#include "tests/layer/environment.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>

namespace layer {

constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();

std::uint64_t Environment::number(const char* name, std::uint64_t otherwise, std::uint64_t least) {
  const char* const text = std::getenv(name);
  if (!text) return otherwise;
  const std::string_view whole = text;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(whole.begin(), whole.end(), value);
  if (error != std::errc() || end != whole.end() || value < least || value > kMost) refuse(name);
  return value;
}

bool Environment::is(const char* name, const char* yes, const char* no) {
  const char* const text = std::getenv(name);
  const std::string_view value = text ? text : no;
  if (value != yes && value != no) refuse(name);
  return value == yes;
}

void Environment::refuse(const char* name) {
  const char* const text = std::getenv(name);
  std::fprintf(stderr, "%s: bad value of %s: '%s'\n", provider_, name, text ? text : "");
  good = false;
}

}  // namespace layer
