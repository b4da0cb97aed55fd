// SPDX-License-Identifier: Apache-2.0
#include "dialects/mpich/hex.hpp"

#include <charconv>
#include <cstdint>

namespace sluice::mpich {

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte one : bytes) {
    text += kDigits[std::to_integer<std::size_t>(one >> 4)];
    text += kDigits[std::to_integer<std::size_t>(one & std::byte{15})];
  }
  return text;
}

bool from_hex(std::string_view text, std::span<std::byte> bytes) {
  if (text.size() != 2 * bytes.size()) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::uint8_t value = 0;
    const char* const at = text.data() + 2 * i;
    if (std::from_chars(at, at + 2, value, 16).ptr != at + 2) return false;
    bytes[i] = std::byte{value};
  }
  return true;
}

}  // namespace sluice::mpich
