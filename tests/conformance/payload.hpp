// SPDX-License-Identifier: Apache-2.0
// Payloads that tell where they come from, so that no byte of another rank, tag, epoch or place can pass for the right
// one.
#pragma once

#include <sluice/types.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sluice::test {

/// The tag of a test that needs but one.
inline constexpr Tag kTag = 101;

/// What is written into every byte of an epoch.
struct Stamp {
  Rank rank = 0;
  Tag tag = 0;
  std::uint64_t epoch = 0;
};

/// Writes the bytes of `stamp` from its byte number `offset` on.
void fill(std::span<std::byte> bytes, const Stamp& stamp, std::size_t offset = 0);

/// Where `bytes` first differ from the bytes of `stamp` from number `offset` on, in words; empty: nowhere. Looks from
/// the end: where a signal overtakes its data, the last bytes are the late ones.
std::string difference(std::span<const std::byte> bytes, const Stamp& stamp, std::size_t offset = 0);

/// Makes them the bytes of nobody.
void poison(std::span<std::byte> bytes);

/// Where `bytes` first differ from what `poison` wrote; empty: nowhere.
std::string unlike_poison(std::span<const std::byte> bytes);

}  // namespace sluice::test
