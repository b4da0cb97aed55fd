// SPDX-License-Identifier: Apache-2.0
#include "collectives/model.hpp"

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "collectives/schedule.hpp"

namespace sluice::collectives {
namespace {

/// ceil(log2 p)
int rounds_of(int p) { return static_cast<int>(std::bit_width(static_cast<unsigned>(p) - 1)); }

/// At least a number of 8 bytes, if there is one.
std::size_t share(std::size_t bytes, int p) {
  constexpr std::size_t kNumber = 8;
  return std::max((bytes + static_cast<std::size_t>(p) - 1) / static_cast<std::size_t>(p), std::min(bytes, kNumber));
}

/// There are as many blocks as the product of the counts.
std::size_t bytes_of_blocks(std::initializer_list<int> counts, std::size_t bytes) {
  for (const int count : counts) bytes *= static_cast<std::size_t>(count);
  return bytes;
}

Time later(const Time& one, const Time& other) { return one.total() < other.total() ? other : one; }

}  // namespace

Time& Time::operator+=(const Time& other) noexcept {
  latency += other.latency;
  overhead += other.overhead;
  bandwidth += other.bandwidth;
  memory += other.memory;
  return *this;
}

Time operator*(double factor, const Time& time) noexcept {
  return {factor * time.latency, factor * time.overhead, factor * time.bandwidth, factor * time.memory};
}

bool Model::is_long(std::size_t bytes) { return bytes > kEager; }

double Model::landed_ns(std::size_t bytes, Landed landed) const {
  if (landed == Landed::in_place) return 0;
  return landed == Landed::copied ? costs_->copy(bytes) : costs_->combine(bytes);
}

Time Model::sends(int count, std::size_t bytes) const {
  if (count == 0) return {};
  const double send = costs_->send + costs_->step;
  return {.overhead = send + (count - 1) * std::max(costs_->gap, send),
          .bandwidth = (count - 1) * costs_->bytes(bytes) + costs_->way(bytes)};
}

Time Model::receives(int count, std::size_t bytes, Landed landed) const {
  return {.overhead = count * (costs_->receive + costs_->step), .memory = count * landed_ns(bytes, landed)};
}

Time Model::one_way(std::size_t bytes, Landed landed) const {
  return sends(1, bytes) + Time{.latency = costs_->latency} + receives(1, bytes, landed);
}

/// A rank that has put all its messages receives those that have arrived, while its own, g apart, are under way. The
/// result is there when the last one has arrived, or when the rank has done the work of all.
Time Model::exchange(int count, std::size_t bytes, Landed landed) const {
  if (count == 0) return {};
  const Time sent = sends(count, bytes);
  const Time last_arrives = sent + Time{.latency = costs_->latency} + receives(1, bytes, landed);
  const Time work = Time{.overhead = count * (costs_->send + costs_->step), .bandwidth = sent.bandwidth} +
                    receives(count, bytes, landed);
  return later(last_arrives, work);
}

Time Model::gather(int count, std::size_t bytes, Landed landed) const {
  if (count == 0) return {};
  return one_way(bytes, landed) + receives(count - 1, bytes, landed);
}

Time Model::arrival(std::size_t bytes) const {
  return Time{.latency = costs_->latency} + receives(1, bytes, Landed::in_place);
}

Time Model::copying(std::size_t bytes) const { return {.memory = costs_->copy(bytes)}; }

/// A copy out of a landing fetches the lines as well; the rest of its time is that of the copy within one core.
Time Model::reading(std::size_t bytes) const {
  return {.memory = std::max(0.0, costs_->copy(bytes) - costs_->way(bytes))};
}

/// Along trees long messages land in place, too.
Time Model::reading_broadcast_by_shares(std::size_t bytes) const { return is_long(bytes) ? Time() : reading(bytes); }

/// A rank has combined its own share.
Time Model::reading_sums_by_shares(int p, std::size_t bytes) const {
  return reading(bytes - bytes / static_cast<std::size_t>(p));
}

/// The cost of one copy: the way of a message and the copy out of its landing contain one each, and more.
Time Model::own_block(std::size_t bytes) const {
  const double copy = std::min(costs_->way(bytes), costs_->copy(bytes));
  return {.memory = std::max(0.0, copy - costs_->latency)};
}

Time Model::dissemination(int p, int ways) const {
  int rounds = 0;
  for (long heard = 1; heard < p; heard *= ways + 1) ++rounds;
  return rounds * exchange(std::min(ways, p - 1), 0, Landed::in_place);
}

int Model::best_ways(int p) const {
  constexpr int kMost = 16;
  int best = 1;
  for (int ways = 2; ways <= std::min(kMost, p - 1); ++ways)
    if (dissemination(p, ways).total() < dissemination(p, best).total()) best = ways;
  return best;
}

/// In the first round a long message waits until it may come; in the others that has arrived.
Time Model::binomial_broadcast(int p, std::size_t bytes) const {
  if (!is_long(bytes)) return rounds_of(p) * one_way(bytes, Landed::copied);
  const Time ready = receives(1, 0, Landed::in_place);
  return sends(1, 0) + Time{.latency = costs_->latency} + rounds_of(p) * (ready + one_way(bytes, Landed::in_place));
}

Time Model::level_broadcast(int p, std::size_t bytes, const Levels& levels) const {
  const bool wait = is_long(bytes) && p > 1;
  Time time = wait ? sends(1, 0) + Time{.latency = costs_->latency} : Time();
  for (const int fan_out : levels) {
    time += sends(fan_out, bytes) + Time{.latency = costs_->latency};
    time += receives(1, bytes, wait ? Landed::in_place : Landed::copied);
    if (wait) time += receives(fan_out, 0, Landed::in_place);
  }
  return time;
}

Levels Model::levels_to_broadcast(int p, std::size_t bytes) const {
  const double c = level_broadcast(p, bytes, {2}).total() - level_broadcast(p, bytes, {1}).total();
  return best_levels(p, c, one_way(bytes, is_long(bytes) ? Landed::in_place : Landed::copied).total() - c);
}

/// The root sends each rank a share, and then its own to all; each of these sends its share to the others.
Time Model::shared_broadcast(int p, std::size_t bytes) const {
  if (p < 2) return {};
  const std::size_t part = share(bytes, p);
  const Time link{.latency = costs_->latency};
  const Time one = receives(1, part, Landed::in_place);
  const Time root = 2 * (p - 1) * one + sends(2 * (p - 1), part) + link + one;
  const Time others = sends(p - 1, part) + link + (2 * p - 2) * one + sends(p - 2, part) + link + one;
  return sends(p - 1, 0) + link + later(root, others);
}

Time Model::binomial_reduce(int p, std::size_t bytes) const { return rounds_of(p) * one_way(bytes, Landed::combined); }

Time Model::level_reduce(std::size_t bytes, const Levels& levels) const {
  Time time;
  for (const int fan_out : levels) time += gather(fan_out, bytes, Landed::combined);
  return time;
}

Levels Model::levels_to_reduce(int p, std::size_t bytes) const {
  const double c = receives(1, bytes, Landed::combined).total();
  return best_levels(p, c, one_way(bytes, Landed::combined).total() - c);
}

Time Model::shared_reduce(int p, std::size_t bytes) const {
  const std::size_t part = share(bytes, p);
  return exchange(p - 1, part, Landed::combined) + gather(p - 1, part, Landed::in_place);
}

/// Ranks beyond a power of two go by way of a partner.
Time Model::doubling_allreduce(int p, std::size_t bytes) const {
  const int even = static_cast<int>(std::bit_floor(static_cast<unsigned>(p)));
  const Time rounds = rounds_of(even) * one_way(bytes, Landed::combined);
  if (even == p) return rounds;
  return one_way(bytes, Landed::combined) + rounds + one_way(bytes, Landed::copied);
}

Time Model::shared_allreduce(int p, std::size_t bytes) const {
  const std::size_t part = share(bytes, p);
  return exchange(p - 1, part, Landed::combined) + exchange(p - 1, part, Landed::in_place);
}

Time Model::puts(int p, std::size_t bytes, bool in_place) const {
  const Time own = in_place ? Time() : own_block(bytes);
  if (!is_long(bytes)) return own + exchange(p - 1, bytes, Landed::copied);
  const Landed landed = in_place ? Landed::copied : Landed::in_place;
  return own + exchange(p - 1, 0, Landed::in_place) + exchange(p - 1, bytes, landed);
}

Time Model::stepwise(int p, std::size_t bytes, int under_way) const {
  const int whole = (p - 1) / under_way;
  return own_block(bytes) + whole * exchange(under_way, bytes, Landed::copied) +
         exchange((p - 1) % under_way, bytes, Landed::copied);
}

/// Each member's blocks go to its leader; leaders exchange what is for whole sets; then the members get theirs.
Time by_leaders(const Model& within, const Model& between, int sets, int size, std::size_t bytes) {
  const std::size_t of_member = bytes_of_blocks({sets, size}, bytes);
  const std::size_t of_sets = bytes_of_blocks({size, size}, bytes);
  Time time = within.gather(size - 1, of_member, Landed::in_place) + (sets - 1) * within.copying(of_sets);
  time += between.exchange(sets - 1, of_sets, Landed::in_place) + size * within.copying(of_member);
  if (size > 1) time += within.sends(size - 1, of_member) + within.arrival(of_member);
  return time + within.copying(of_member);
}

/// Each rank sends to its partner in each other set what is for that set; then the members of a set exchange.
Time by_places(const Model& within, const Model& between, int sets, int size, std::size_t bytes) {
  const std::size_t of_set = bytes_of_blocks({size}, bytes);
  Time time = between.exchange(sets - 1, of_set, Landed::in_place);
  time += within.exchange(size - 1, bytes_of_blocks({sets}, bytes), Landed::in_place);
  return time + 2 * within.copying(bytes_of_blocks({sets, size}, bytes));
}

/// By leaders of groups, which exchange by their places in their nodes.
Time by_leaders_and_places(const Model& within, const Model& between, int nodes, int groups, int size,
                           std::size_t bytes) {
  const std::size_t of_member = bytes_of_blocks({nodes, groups, size}, bytes);
  Time time = within.gather(size - 1, of_member, Landed::in_place);
  time += by_places(within, between, nodes, groups, bytes_of_blocks({size, size}, bytes));
  if (size > 1) time += within.sends(size - 1, of_member) + within.arrival(of_member);
  return time + within.copying(of_member);
}

Time lanes_allreduce(const Model& within, const Model& between, int nodes, int lanes, std::size_t bytes) {
  const std::size_t part = share(bytes, lanes);
  const Time across =
      part <= kLaneInRounds ? between.doubling_allreduce(nodes, part) : between.shared_allreduce(nodes, part);
  return within.exchange(lanes - 1, part, Landed::combined) + across +
         within.exchange(lanes - 1, part, Landed::in_place);
}

}  // namespace sluice::collectives
