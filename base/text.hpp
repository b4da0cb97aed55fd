// SPDX-License-Identifier: Apache-2.0
// Numbers and names as text, the same in every locale of the program. Nothing else here prints fractions or JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::base {

/// Returns a number for a text, equal in all processes, also of different compilers.
std::uint64_t hash(std::string_view text) noexcept;

/// Returns the non-empty parts between separators, which live as long as the text.
std::vector<std::string_view> words_of(std::string_view text, char separator = ',');

/// Writes a number with `digits` digits behind the point: "2.50".
std::string decimal(double value, int digits);

/// Writes at least `digits` digits: "00ff".
std::string hexadecimal(std::uint64_t value, int digits = 1);

/// Writes about three digits, in the largest unit that is not above the duration: "2.5 s", "40 ms".
std::string duration_text(std::chrono::nanoseconds duration);

/// Writes a string of JSON, with its quotes. A byte that is not UTF-8 becomes U+FFFD, the replacement character,
/// because readers refuse a file with such a byte.
std::string json_text(std::string_view text);

}  // namespace sluice::base
