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

/// Identifies every byte of an epoch.
struct Stamp {
  Rank rank = 0;
  Tag tag = 0;
  std::uint64_t epoch = 0;
};

/// Writes the bytes of `stamp` from its byte number `offset` on.
void fill(std::span<std::byte> bytes, const Stamp& stamp, std::size_t offset = 0);

/// The place at which `bytes` first differ from the bytes of `stamp` from number `offset` on, in words; empty: none.
/// Looks from the end: where a signal overtakes its data, the last bytes are the late ones.
std::string difference(std::span<const std::byte> bytes, const Stamp& stamp, std::size_t offset = 0);

/// Overwrites the bytes with those of no stamp.
void poison(std::span<std::byte> bytes);

/// The place at which `bytes` first differ from those of `poison`; empty: none.
std::string unlike_poison(std::span<const std::byte> bytes);

}  // namespace sluice::test
