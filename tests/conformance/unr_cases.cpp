// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/unr_cases.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/races.hpp"

namespace sluice::test {
namespace {

constexpr std::byte kUntouched{0x5A};

/// Byte `index` of a message in a round.
std::byte byte_of(std::size_t message, std::uint64_t round, std::size_t index) {
  return static_cast<std::byte>(((message + 1) * 0x9E3779B97F4A7C15U + round * 0xC2B2AE3D27D4EB4FU + index * 131) >> 3);
}

/// Calls `visit(address offset, index of the byte)` for the bytes of `count` elements.
template <class Visit>
void each_byte(const unr::Layout& layout, std::size_t at, std::size_t count, Visit visit) {
  std::size_t index = 0;
  for (std::size_t i = 0; i < count; ++i)
    for (const unr::Piece& piece : layout.pieces)
      for (std::size_t j = 0; j < piece.bytes; ++j) visit(at + i * layout.extent + piece.offset + j, index++);
}

}  // namespace

std::vector<Case> unr_cases(const std::vector<int>& ranks) {
  std::vector<Case> all = memory_cases();  // with the networks that are named
  for (const Case& one : on(all_grounds(), memory_cases())) all.push_back(one);
  std::set<std::string> names;
  std::erase_if(all, [&](const Case& one) {
    return (one.cuda && (one.user || one.ground.network || one.ground.polled)) || !names.insert(one.name()).second;
  });
  return with_ranks(all, ranks);
}

std::vector<Case> unr_cases_of_processes() {
  std::vector<Case> all = unr_cases({2});
  std::erase_if(all, [](const Case& one) { return !one.ground.processes || one.user || one.cuda; });
  return all;
}

MessageList::MessageList(std::uint64_t seed, int ranks) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  constexpr std::array<std::size_t, 7> kSizes{0, 1, 8, 200, 1024, 3000, 20'000};
  const std::size_t messages = 5 + below(30);
  for (std::size_t i = 0; i < messages; ++i) {
    Entry entry;
    entry.from = static_cast<Rank>(below(static_cast<std::size_t>(ranks)));
    entry.to = static_cast<Rank>(below(static_cast<std::size_t>(ranks)));
    entry.tag = static_cast<Tag>(below(3));
    const std::size_t blocks = 1 + below(5);
    const std::size_t bytes = kSizes[below(kSizes.size())] / blocks;
    entry.count = 1 + below(2);
    // Blocks of one side may be one on the other.
    entry.sent_as =
        below(2) == 0 ? unr::Layout::of(blocks * bytes) : unr::Layout::strided(blocks, bytes, bytes + below(9));
    entry.received_as =
        below(2) == 0 ? unr::Layout::of(blocks * bytes) : unr::Layout::strided(blocks, bytes, bytes + below(9));
    entry.received_as.extent += below(2) * 16;
    entry.source_at = source_bytes_;
    entry.target_at = target_bytes_;
    source_bytes_ += entry.count * entry.sent_as.extent + below(5);
    target_bytes_ += entry.count * entry.received_as.extent + below(5);
    // ThreadSanitizer learns that a source is free from the wait for its signal alone: there each send has one.
    entry.sends_signal = below(base::races::kOn ? kSignals : kSignals + 1);
    entry.receives_signal = below(kSignals);
    entries_.push_back(std::move(entry));
  }
}

void MessageList::fill(Rank rank, const Slice& source, std::uint64_t round) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.from != rank) continue;
    each_byte(entry.sent_as, entry.source_at, entry.count,
              [&](std::size_t at, std::size_t index) { source.data()[at] = byte_of(i, round, index); });
  }
}

void MessageList::check(Rank rank, const Slice& target, std::size_t signal, std::uint64_t round) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.to != rank || entry.receives_signal != signal) continue;
    std::size_t wrong = 0;
    each_byte(entry.received_as, entry.target_at, entry.count, [&](std::size_t at, std::size_t index) {
      if (target.data()[at] != byte_of(i, round, index)) ++wrong;
      target.data()[at] = kUntouched;
    });
    EXPECT_EQ(wrong, 0U) << "message " << i << " of rank " << entry.from << ", round " << round;
  }
}

void MessageList::run(Context& context, Order& order, const Slice& source, const Slice& target, bool gpu,
                      std::uint64_t rounds) const {
  const Rank rank = context.rank();
  std::mt19937_64 random(entries_.size() * 31 + static_cast<std::uint64_t>(rank));
  unr::Plan plan(context, "random", {.pack_up_to = random() % 4 == 0 ? 0U : 2048U});
  std::vector<unr::Signal> signals;
  for (std::size_t i = 0; i < kSignals; ++i) signals.push_back(plan.signal("signal " + std::to_string(i)));
  for (const Entry& entry : entries_) {
    const auto& [from, to, tag, count, sent_as, received_as, source_at, target_at, sends_signal, receives_signal] =
        entry;
    if (from == rank)
      plan.isend(source, source_at, count, sent_as, to, tag,
                 sends_signal == kSignals ? unr::Signal() : signals[sends_signal]);
    if (to == rank) plan.irecv(target, target_at, count, received_as, from, tag, signals[receives_signal]);
  }
  plan.commit(order.stream());
  std::ranges::fill(std::span(target.data(), target.bytes()), kUntouched);
  board().meet(context);
  std::vector<std::size_t> turns(kSignals);
  std::iota(turns.begin(), turns.end(), std::size_t{0});
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    order.run([this, rank, source, round] { fill(rank, source, round); });
    plan.start(order.stream());
    std::ranges::shuffle(turns, random);
    for (const std::size_t turn : turns) {
      if (gpu || random() % 2 == 0) {
        signals[turn].wait(order.stream());
        order.run([this, rank, target, turn, round] { check(rank, target, turn, round); });
      } else {
        ASSERT_TRUE(signals[turn].wait_for(std::chrono::seconds(20)));
        check(rank, target, turn, round);
      }
    }
    // All have received, so sends without a signal have left, too.
    context.synchronize(order.stream());
    board().meet(context);
    for (const std::size_t turn : turns) signals[turn].reset(order.stream());
  }
  plan.close();
  const auto touched = [](std::byte byte) { return byte != kUntouched; };
  EXPECT_EQ(std::ranges::count_if(std::span(target.data(), target.bytes()), touched), 0) << "between pieces";
}

}  // namespace sluice::test
