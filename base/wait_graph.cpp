// SPDX-License-Identifier: Apache-2.0
#include "base/wait_graph.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <set>

#include "base/text.hpp"

namespace sluice::base {
namespace {

constexpr std::size_t kMostRows = 20;                    // so that the table fits on a screen
constexpr std::size_t kMostNamed = 4;                    // cycles, and ranks that wait for nothing
constexpr auto kPolledWithin = std::chrono::seconds(1);  // a program that looks no more does not wait

using Edges = std::map<int, std::set<int>>;

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

/// "epoch 3 of tag 7"
std::string epoch_text(const WaitRecord& wait) {
  return "epoch " + std::to_string(wait.epoch) + " of tag " + std::to_string(wait.tag);
}

std::string not_opened(const WaitRecord& wait) {
  const std::string peer = rank_text(wait.peer);
  if (!wait.answered) return peer + " has not opened its end of tag " + std::to_string(wait.tag);
  if (!wait.reached) return "no connection to " + peer + " yet: has it called sluice::run?";
  const std::string other = wait.sends ? "receiver" : "sender";
  const std::string opened(wait.text.view());
  return peer + " has not opened its " + other + " of tag " + std::to_string(wait.tag) +
         "; unmatched ends that it has opened towards " + rank_text(wait.rank) + ": " +
         (opened.empty() ? "none" : opened);
}

std::string not_put(const WaitRecord& wait) {
  const std::string peer = rank_text(wait.peer);
  const EndCounts& its = wait.counts;
  if (!wait.answered) return peer + " has not answered: " + epoch_text(wait) + " has not come";
  if (its.enqueued < wait.epoch)
    return peer + " has not put " + epoch_text(wait) + " (its last put is " + std::to_string(its.enqueued) + ")";
  if (its.completed >= wait.epoch) return epoch_text(wait) + " is under way from " + peer;
  if (its.released + its.depth < wait.epoch)
    return "the put of " + epoch_text(wait) + " waits at " + peer + " until " + rank_text(wait.rank) +
           " has released epoch " + std::to_string(wait.epoch - its.depth);
  return peer + " has enqueued the put of " + epoch_text(wait) + ", and its stream has not reached it";
}

std::string not_released(const WaitRecord& wait) {
  const std::string peer = rank_text(wait.peer);
  const EndCounts& its = wait.counts;
  if (!wait.answered) return peer + " has not answered: it has not released " + epoch_text(wait);
  if (its.released >= wait.epoch)
    return peer + " has enqueued the release of " + epoch_text(wait) + ", and its stream has not reached it";
  if (its.completed >= wait.epoch) return peer + " holds " + epoch_text(wait) + " and has not released it";
  if (its.enqueued >= wait.epoch)
    return peer + " has enqueued the wait for " + epoch_text(wait) + ", and its stream has not reached it";
  return peer + " has not waited for " + epoch_text(wait);
}

Edges edges_of(const std::vector<WaitRecord>& waits) {
  Edges edges;
  for (const WaitRecord& wait : waits) {
    if (wait.peer >= 0) edges[wait.rank].insert(wait.peer);
  }
  return edges;
}

/// The shortest way from a rank back to itself; empty: there is none.
std::vector<int> way_back(const Edges& edges, int rank) {
  std::map<int, int> before;
  std::deque<int> next{rank};
  while (!next.empty()) {
    const int here = next.front();
    next.pop_front();
    const auto out = edges.find(here);
    if (out == edges.end()) continue;
    for (const int there : out->second) {
      if (!before.emplace(there, here).second) continue;
      next.push_back(there);
    }
  }
  if (!before.contains(rank)) return {};
  std::vector<int> way;
  for (int at = before.at(rank); at != rank; at = before.at(at)) way.push_back(at);
  way.push_back(rank);
  std::reverse(way.begin(), way.end());
  return way;
}

std::string cycle_line(const std::vector<int>& cycle) {
  std::string text = "a cycle: ";
  for (const int rank : cycle) text += rank_text(rank) + " waits for ";
  return text + rank_text(cycle.front());
}

/// Ranks that others wait for, and that wait for nothing themselves.
std::vector<int> idle_ranks(const std::vector<WaitRecord>& waits, const std::vector<int>& seen) {
  std::set<int> awaited;
  std::set<int> waiting;
  for (const WaitRecord& wait : waits) {
    waiting.insert(wait.rank);
    if (wait.peer >= 0) awaited.insert(wait.peer);
  }
  std::vector<int> idle;
  for (const int rank : awaited) {
    if (!waiting.contains(rank) && std::find(seen.begin(), seen.end(), rank) != seen.end()) idle.push_back(rank);
  }
  return idle;
}

std::string what_waits(const WaitRecord& wait) {
  std::string text = rank_text(wait.rank) + ' ' + std::string(wait.verb.view());
  if (wait.peer >= 0)
    text +=
        (wait.sends ? " to rank " : " from rank ") + std::to_string(wait.peer) + ", tag " + std::to_string(wait.tag);
  if (!wait.name.view().empty()) text += " '" + std::string(wait.name.view()) + "'";
  return text;
}

/// The lower, the nearer to the top: a release or a put that was forgotten names itself, a stream that has not come to
/// something is behind another wait.
int order_of(const WaitRecord& wait) {
  if (wait.lack == Lack::release && wait.answered && wait.counts.completed >= wait.epoch &&
      wait.counts.released < wait.epoch)
    return 0;
  if (wait.lack == Lack::opening || (wait.answered && wait.counts.enqueued < wait.epoch)) return 1;
  return wait.lack == Lack::put || wait.lack == Lack::release ? 2 : 3;
}

}  // namespace

std::string who_owes(const WaitRecord& wait) {
  switch (wait.lack) {
    case Lack::opening: return not_opened(wait);
    case Lack::put: return not_put(wait);
    case Lack::release: return not_released(wait);
    case Lack::copying:
      return rank_text(wait.peer) + " has not ended its part of the copy of epoch " + std::to_string(wait.epoch);
    case Lack::letting_go:
      return rank_text(wait.peer) + " has not released the memory of tag " + std::to_string(wait.tag);
    case Lack::count:
      return "peers have not raised its counter " + std::to_string(wait.tag) + " to " + std::to_string(wait.epoch);
    case Lack::notice: return "no notice that matches has come";
    case Lack::step: return std::string(wait.text.view());
    case Lack::completion: return "its own work on this channel has not completed";
    case Lack::room: break;
  }
  return "the queue of " + std::string(wait.stream.view()) + " is full (" + std::to_string(wait.epoch) + " items)";
}

std::vector<std::vector<int>> cycles_of(const std::vector<WaitRecord>& waits) {
  const Edges edges = edges_of(waits);
  std::vector<std::vector<int>> cycles;
  std::set<int> named;
  for (const auto& [rank, peers] : edges) {
    if (named.contains(rank)) continue;
    const std::vector<int> way = way_back(edges, rank);
    if (way.empty()) continue;
    const bool known = std::any_of(way.begin(), way.end(), [&](int one) { return named.contains(one); });
    named.insert(way.begin(), way.end());
    if (!known) cycles.push_back(way);
  }
  return cycles;
}

std::string wait_table(std::vector<WaitRecord> waits, const std::vector<int>& seen, Clock::time_point now,
                       Clock::duration least) {
  constexpr Clock::time_point kSleeps{};
  std::erase_if(waits, [&](const WaitRecord& one) {
    return now - one.since < least || (one.polled != kSleeps && now - one.polled > kPolledWithin);
  });
  if (waits.empty()) return {};
  std::stable_sort(waits.begin(), waits.end(), [](const WaitRecord& a, const WaitRecord& b) {
    return std::pair(order_of(a), a.rank) < std::pair(order_of(b), b.rank);
  });
  const std::size_t shown = std::min(waits.size(), kMostRows);
  std::size_t widest = 0;
  for (std::size_t i = 0; i < shown; ++i) widest = std::max(widest, what_waits(waits[i]).size());
  std::string text = "who waits for whom";
  for (std::size_t i = 0; i < shown; ++i) {
    const WaitRecord& wait = waits[i];
    std::string what = what_waits(wait);
    what.resize(widest, ' ');
    text += "\n  " + what + "  " + duration_text(now - wait.since) + ", " + std::string(wait.stream.view()) + ": " +
            who_owes(wait);
  }
  if (waits.size() > shown) text += "\n  and " + std::to_string(waits.size() - shown) + " waits more";
  std::vector<std::vector<int>> cycles = cycles_of(waits);
  cycles.resize(std::min(cycles.size(), kMostNamed));
  for (const auto& cycle : cycles) text += "\n  " + cycle_line(cycle);
  std::vector<int> idle = idle_ranks(waits, seen);
  idle.resize(std::min(idle.size(), kMostNamed));
  for (const int rank : idle) text += "\n  " + rank_text(rank) + " waits for nothing in Sluice, and others wait for it";
  return text;
}

}  // namespace sluice::base
