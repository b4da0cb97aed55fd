// SPDX-License-Identifier: Apache-2.0
#include "backends/measured_copy.hpp"

#include "base/copy.hpp"
#include "base/words.hpp"

namespace sluice::backends {
namespace {

/// What a peer waits longer for the first bytes from memory than from another core's cache (a Zen 4: docs/design.md).
constexpr std::chrono::microseconds kFromMemory(2);

void copy_by(Way way, std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (way == Way::past_cache) return base::copy_past_cache(to, from, bytes);
  base::copy_bytes(to, from, bytes);
}

}  // namespace

void MeasuredCopy::operator()(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  const std::uint32_t turn = turn_++;
  const Way way = ways_.choose(bytes, turn, false);
  if (!ways_.wants_time(bytes, turn, false)) return copy_by(way, to, from, bytes);
  const auto began = base::Clock::now();
  copy_by(way, to, from, bytes);
  const auto time = base::Clock::now() - began;
  ways_.took(way, bytes, way == Way::past_cache ? time + kFromMemory : time);
}

}  // namespace sluice::backends
