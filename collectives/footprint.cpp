// SPDX-License-Identifier: Apache-2.0
#include "collectives/footprint.hpp"

#include <algorithm>
#include <bit>
#include <set>

#include "collectives/schedule.hpp"

namespace sluice::collectives {
namespace {

constexpr std::size_t kNumberBytes = 8;

/// Bytes of memory in which a message of so many bytes lands before it is copied or combined.
double landing(std::size_t bytes) { return allocated(kLandings * bytes); }

/// Each message is one end, and a long one has another, by which its receiver says that it may come.
double ends_of(double messages, bool are_long) { return are_long ? 2 * messages : messages; }

/// A rank that has a parent gets one message.
double landing_of_child(int p, std::size_t bytes) { return p > 1 && bytes <= kEager ? landing(bytes) : 0; }

}  // namespace

/// Aligned to a line, or from a page on to pages.
double allocated(std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kPageBytes = 4096;
  const std::size_t unit = bytes < kPageBytes ? kLine : kPageBytes;
  const std::size_t units = (bytes + unit - 1) / unit;
  return static_cast<double>(units * unit);
}

Footprint dissemination_footprint(int p, int ways) {
  Footprint most;
  std::set<int> peers;
  for (int distance = 1; distance < p; distance *= ways + 1) {
    for (int way = 1; way <= ways && way * distance < p; ++way) {
      most.ends += 2;
      peers.insert({way * distance, p - way * distance});
    }
  }
  most.peers = static_cast<double>(peers.size());
  return most;
}

/// The root has the most children, one for each round.
Footprint binomial_broadcast_footprint(int p, std::size_t bytes) {
  const double children = std::bit_width(static_cast<unsigned>(p) - 1);
  return {ends_of(children, bytes > kEager), children, landing_of_child(p, bytes)};
}

/// The first rank of each level has the most children.
Footprint level_broadcast_footprint(int p, std::size_t bytes, const Levels& levels) {
  double most = 0;
  long begin = 0;  // of a level
  long count = 1;
  for (const int fan_out : levels) {
    const long next = begin + count;
    if (begin >= p) break;
    const double parents = begin > 0 ? 1 : 0;
    most = std::max(most, parents + static_cast<double>(std::clamp<long>(p - next, 0, fan_out)));
    begin = next;
    count *= fan_out;
  }
  return {ends_of(most, bytes > kEager), most, landing_of_child(p, bytes)};
}

/// All messages are long, whatever their size. With fewer bytes than ranks one rank has them all.
Footprint shared_broadcast_footprint(int p, std::size_t bytes) {
  const double others = p - 1;
  const bool all_have_shares = bytes >= static_cast<std::size_t>(p);
  return {bytes == 0 ? 0 : (all_have_shares ? 4 : 2) * others, bytes == 0 ? 0 : others, 0};
}

Footprint doubling_allreduce_footprint(int p, std::size_t bytes) {
  const int even = static_cast<int>(std::bit_floor(static_cast<unsigned>(p)));
  const double rounds = std::bit_width(static_cast<unsigned>(even)) - 1;
  const double extra = even < p ? 1 : 0;
  const double sums = extra + std::max(0.0, rounds - 1);
  return {2 * (rounds + extra), rounds + extra, (rounds + extra) * landing(bytes) + sums * allocated(bytes)};
}

/// A rank with a share receives from all others and sends them the result. The others may have shares, too.
Footprint shared_allreduce_footprint(int p, std::size_t bytes) {
  const std::size_t numbers = bytes / kNumberBytes;
  const auto ranks = static_cast<std::size_t>(p);
  if (numbers == 0 || p < 2) return {};
  const std::size_t share = (numbers + ranks - 1) / ranks * kNumberBytes;
  const double others = p - 1;
  const double with_shares = static_cast<double>(std::min(numbers, ranks)) - 1;
  return {2 * others + 2 * with_shares, others, others * landing(share) + (p > 2 ? allocated(share) : 0)};
}

Footprint puts_footprint(int p, std::size_t bytes) {
  const double others = p - 1;
  return {ends_of(2 * others, bytes > kEager), others, bytes > kEager ? 0 : others * landing(bytes)};
}

}  // namespace sluice::collectives
