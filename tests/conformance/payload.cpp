// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/payload.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace sluice::test {
namespace {

constexpr std::size_t kChunk = 4096;
constexpr std::uint64_t kOdd = 0x9e37'79b9'7f4a'7c15ULL;
constexpr std::byte kPoisonByte{0xd5};

std::uint64_t seed(const Stamp& stamp) {
  std::uint64_t mixed = stamp.epoch * kOdd + static_cast<std::uint64_t>(stamp.tag) * 0xbf58'476d'1ce4'e5b9ULL +
                        static_cast<std::uint64_t>(stamp.rank + 1) * 0x94d0'49bb'1331'11ebULL;
  mixed ^= mixed >> 29;
  return mixed * kOdd;
}

/// The whole chunk in which byte number `at` of a stamp lies.
void write_chunk(std::array<std::byte, kChunk>& chunk, std::uint64_t base, std::size_t at) {
  std::uint64_t word = base + at / kChunk * (kChunk / 8) * kOdd;
  for (std::size_t i = 0; i < kChunk; i += 8, word += kOdd) std::memcpy(chunk.data() + i, &word, 8);
}

std::size_t first_difference(std::span<const std::byte> got, const std::byte* expected) {
  const auto at = std::mismatch(got.begin(), got.end(), expected).first;
  return static_cast<std::size_t>(at - got.begin());
}

}  // namespace

void fill(std::span<std::byte> bytes, const Stamp& stamp, std::size_t offset) {
  std::array<std::byte, kChunk> chunk;
  const std::uint64_t base = seed(stamp);
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t at = offset + done;
    write_chunk(chunk, base, at);
    const std::size_t part = std::min(kChunk - at % kChunk, bytes.size() - done);
    std::memcpy(bytes.data() + done, chunk.data() + at % kChunk, part);
    done += part;
  }
}

std::string difference(std::span<const std::byte> bytes, const Stamp& stamp, std::size_t offset) {
  std::array<std::byte, kChunk> chunk;
  const std::uint64_t base = seed(stamp);
  for (std::size_t left = bytes.size(); left > 0;) {
    const std::size_t end = offset + left;
    const std::size_t part = std::min((end - 1) % kChunk + 1, left);
    write_chunk(chunk, base, end - 1);
    const std::byte* const expected = chunk.data() + (end - part) % kChunk;
    const auto got = bytes.subspan(left - part, part);
    if (std::memcmp(got.data(), expected, part) != 0) {
      return "byte " + std::to_string(left - part + first_difference(got, expected)) + " of " +
             std::to_string(bytes.size()) + " is not that of rank " + std::to_string(stamp.rank) + ", tag " +
             std::to_string(stamp.tag) + ", epoch " + std::to_string(stamp.epoch);
    }
    left -= part;
  }
  return {};
}

void poison(std::span<std::byte> bytes) { std::fill(bytes.begin(), bytes.end(), kPoisonByte); }

std::string unlike_poison(std::span<const std::byte> bytes) {
  const auto at = std::find_if(bytes.begin(), bytes.end(), [](std::byte byte) { return byte != kPoisonByte; });
  if (at == bytes.end()) return {};
  return "byte " + std::to_string(at - bytes.begin()) + " of " + std::to_string(bytes.size()) + " was written";
}

}  // namespace sluice::test
