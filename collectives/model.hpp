// SPDX-License-Identifier: Apache-2.0
// How long each algorithm takes: closed forms, in the parameters of LogGP. All ranks start at the same time; what is
// predicted is when the last one has its result. tests/unit/model_test.cpp compares them with the schedules.
#pragma once

#include <cstddef>

#include "collectives/levels.hpp"
#include "collectives/loggp.hpp"

namespace sluice::collectives {

/// Steps of a batched alltoall that are under way at a time, as in MPI Advance.
inline constexpr int kBatch = 5;

/// A time in nanoseconds, by what it is spent on.
struct Time {
  double latency = 0;    ///< L
  double overhead = 0;   ///< o_s, o_r and g
  double bandwidth = 0;  ///< G
  double memory = 0;     ///< copies and sums
  double total() const noexcept { return latency + overhead + bandwidth + memory; }
  Time& operator+=(const Time& other) noexcept;
};
inline Time operator+(Time one, const Time& other) noexcept { return one += other; }
Time operator*(double factor, const Time& time) noexcept;

/// Use that a receiver makes of a message that has landed.
enum class Landed { in_place, copied, combined };

/// Messages between ranks of one kind of link.
class Model {
 public:
  explicit Model(const LogGP& costs) : costs_(&costs) {}

  /// `count` messages, one after the other, by one rank.
  Time sends(int count, std::size_t bytes) const;
  /// `count` messages that have landed.
  Time receives(int count, std::size_t bytes, Landed landed) const;
  /// From the begin of a put to when the receiver has done with it.
  Time one_way(std::size_t bytes, Landed landed) const;
  /// Each rank sends `count` messages, and then receives as many.
  Time exchange(int count, std::size_t bytes, Landed landed) const;
  /// One rank receives from `count` others, which send at the same time.
  Time gather(int count, std::size_t bytes, Landed landed) const;
  /// From the end of a put.
  Time arrival(std::size_t bytes) const;
  Time copying(std::size_t bytes) const;
  /// Extra time of a program that reads bytes which landed in its memory: a copy there would have fetched their lines
  /// from the peer's core.
  Time reading(std::size_t bytes) const;
  // `reading` for results by shares, which land in place whatever their size. A choice adds it to the time of shares.
  Time reading_broadcast_by_shares(std::size_t bytes) const;
  Time reading_sums_by_shares(int p, std::size_t bytes) const;
  /// Copying this rank's own block, as far as that takes longer than its last put is under way.
  Time own_block(std::size_t bytes) const;
  /// Longer messages land in their place.
  static bool is_long(std::size_t bytes);

  // Times of algorithms among p ranks. A sender of more than kEager bytes that are not combined first waits for a
  // message of its receiver.
  Time dissemination(int p, int ways) const;
  /// How many ways of dissemination take the least time.
  int best_ways(int p) const;
  Time binomial_broadcast(int p, std::size_t bytes) const;
  Time level_broadcast(int p, std::size_t bytes, const Levels& levels) const;
  Levels levels_to_broadcast(int p, std::size_t bytes) const;
  Time shared_broadcast(int p, std::size_t bytes) const;
  Time binomial_reduce(int p, std::size_t bytes) const;
  Time level_reduce(std::size_t bytes, const Levels& levels) const;
  Levels levels_to_reduce(int p, std::size_t bytes) const;
  Time shared_reduce(int p, std::size_t bytes) const;
  Time doubling_allreduce(int p, std::size_t bytes) const;
  Time shared_allreduce(int p, std::size_t bytes) const;
  /// Allgather, and alltoall: a block of `bytes` to each other rank. In place blocks never land where they belong.
  Time puts(int p, std::size_t bytes, bool in_place = false) const;
  /// So many of alltoall's steps under way at a time.
  Time stepwise(int p, std::size_t bytes, int under_way) const;

 private:
  double landed_ns(std::size_t bytes, Landed landed) const;
  const LogGP* costs_;
};

/// Alltoall by leaders of sets, or by places in sets (Bienz et al., see alltoall.cpp): `sets` of `size` ranks, the
/// messages within a set by one model, those between sets by another.
Time by_leaders(const Model& within, const Model& between, int sets, int size, std::size_t bytes);
Time by_places(const Model& within, const Model& between, int sets, int size, std::size_t bytes);
/// `groups` of `size` ranks on each node.
Time by_leaders_and_places(const Model& within, const Model& between, int nodes, int groups, int size,
                           std::size_t bytes);

/// Allreduce in `lanes` across `nodes`.
Time lanes_allreduce(const Model& within, const Model& between, int nodes, int lanes, std::size_t bytes);

}  // namespace sluice::collectives
