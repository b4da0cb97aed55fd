// SPDX-License-Identifier: Apache-2.0
// Common to the tests of plans of messages: their cases, and random lists of messages.
#pragma once

#include <sluice/unr.hpp>

#include <cstdint>
#include <random>
#include <vector>

#include "tests/conformance/cases.hpp"

namespace sluice::test {

/// Memory of the user on streams of GPUs is left out: the driver takes it only while no stream waits.
std::vector<Case> unr_cases(const std::vector<int>& ranks);
std::vector<Case> unr_cases_of_processes();

/// Rank 0 sends to rank 1, in one put or in several.
struct OneWayPlan {
  static constexpr std::size_t kMessageBytes = 3000;

  OneWayPlan(Context& context, const Case& one, const unr::Options& options = {})
      : rank(context.rank()), order(one), memory(context, one, 2 * kMessageBytes), plan(context, "one way", options),
        signal(plan.signal(rank == 0 ? "sent" : "arrived", 2)) {
    for (const std::size_t i : {0, 1}) {
      const Slice part = memory.all().slice(i * kMessageBytes, kMessageBytes);
      if (rank == 0) plan.isend(part, 1, 7, signal);
      if (rank == 1) plan.irecv(part, 0, 7, signal);
    }
    plan.commit(order.stream());
  }
  Stream stream() { return order.stream(); }

  Rank rank;
  test::Order order;
  Buffer memory;
  unr::Plan plan;
  unr::Signal signal;
};

/// Random messages between ranks, the same list at all of them, and the answer of every byte.
class MessageList {
 public:
  MessageList(std::uint64_t seed, int ranks);

  /// Bytes of the slices of each rank.
  std::size_t source_bytes() const { return source_bytes_; }
  std::size_t target_bytes() const { return target_bytes_; }
  /// Makes a plan of the messages of this rank, and carries it out.
  void run(Context& context, Order& order, const Slice& source, const Slice& target, bool gpu,
           std::uint64_t rounds) const;

 private:
  struct Entry {
    Rank from;
    Rank to;
    Tag tag;
    std::size_t count;  // of elements
    unr::Layout sent_as;
    unr::Layout received_as;
    std::size_t source_at;
    std::size_t target_at;
    std::size_t sends_signal;  // kSignals: none
    std::size_t receives_signal;
  };
  static constexpr std::size_t kSignals = 3;

  void fill(Rank rank, const Slice& source, std::uint64_t round) const;
  void check(Rank rank, const Slice& target, std::size_t signal, std::uint64_t round) const;

  std::vector<Entry> entries_;
  std::size_t source_bytes_ = 64;
  std::size_t target_bytes_ = 64;
};

}  // namespace sluice::test
