// SPDX-License-Identifier: Apache-2.0
// Numbers and names as text, the same in every locale of the program. Nothing else here prints fractions or JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::base {

/// A number for a text, equal in all processes, whatever they were built with.
std::uint64_t hash(std::string_view text) noexcept;

/// The parts between separators, but for empty ones; they live as long as the text.
std::vector<std::string_view> words_of(std::string_view text, char separator = ',');

/// With so many digits behind the point: "2.50".
std::string decimal(double value, int digits);

/// "00ff", with at least so many digits.
std::string hexadecimal(std::uint64_t value, int digits = 1);

/// About three digits, in the largest unit of which there is at least one: "2.5 s", "40 ms".
std::string duration_text(std::chrono::nanoseconds duration);

/// A string of JSON, in its quotes. A byte that is not UTF-8 becomes U+FFFD, the replacement character: readers refuse
/// a file with any other.
std::string json_text(std::string_view text);

}  // namespace sluice::base
