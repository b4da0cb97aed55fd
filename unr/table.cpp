// SPDX-License-Identifier: Apache-2.0
#include "unr/table.hpp"

#include <sluice/error.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>

#include "runtime/cores.hpp"

namespace sluice::unr {
namespace {

/// The entries of one put. A rank does not know in advance how many entries its peer has.
struct Chunk {
  std::uint64_t entries_in_all = 0;
  std::array<Entry, 60> entries;
};

/// The two channels to a peer.
struct Line {
  Memory out_slot;
  Memory in_slot;
  Sender out;
  Receiver in;
  std::vector<Entry> given;
  std::vector<Entry> got;
  std::size_t left = 0;      // of `given`, to send
  bool told = false;         // how many entries the peer has
  std::size_t expected = 0;  // that many

  bool is_done() const noexcept { return told && left == 0 && got.size() == expected; }
  void put(std::size_t first);
  void take(const Chunk& chunk);
};

void Line::put(std::size_t first) {
  Chunk chunk;
  chunk.entries_in_all = given.size();
  const std::size_t count = std::min(left, chunk.entries.size());
  std::copy_n(given.begin() + static_cast<std::ptrdiff_t>(first), count, chunk.entries.begin());
  out.acquire({});
  std::memcpy(out_slot.data(), &chunk, sizeof chunk);
  out.put({});
  left -= count;
}

void Line::take(const Chunk& chunk) {
  told = true;
  expected = chunk.entries_in_all;
  const std::size_t count = std::min(expected - got.size(), chunk.entries.size());
  got.insert(got.end(), chunk.entries.begin(), chunk.entries.begin() + static_cast<std::ptrdiff_t>(count));
}

/// Waits until the peer has taken the chunk before.
void await_room(Context& context, Line& line, base::Limit& limit) {
  constexpr auto kBetweenLooks = std::chrono::microseconds(50);
  while (!line.out.credited()) {
    if (limit.over())
      throw Error(Code::timeout, context.rank(), line.out.peer(), 0, 0, "the messages of a plan have not been taken");
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void receive(Context& context, Line& line, base::Limit& limit) {
  if (!wait_within(limit, line.in))
    throw Error(Code::timeout, context.rank(), line.in.peer(), 0, 0, "the messages of a plan have not been told");
  Chunk chunk;
  std::memcpy(&chunk, line.in_slot.data(), sizeof chunk);
  line.in.release({});
  line.take(chunk);
}

}  // namespace

std::map<Rank, std::vector<Entry>> exchange_tables(Context& context, const std::string& name,
                                                   const std::vector<Entry>& own, const std::vector<Rank>& peers,
                                                   base::Limit& limit, Timeout stated) {
  Scope scope = context.scope("unr tables: " + name);
  const std::string text = "the messages of plan '" + name + "'";
  std::deque<Line> lines;
  std::map<Rank, std::vector<Entry>> given;
  for (const Entry& entry : own) given[entry.peer].push_back(entry);
  for (const Rank peer : peers) {
    Line& line = lines.emplace_back();
    line.out_slot = context.allocate(sizeof(Chunk));
    line.in_slot = context.allocate(sizeof(Chunk));
    line.out = scope.sender(peer, 0, line.out_slot.all(), {.name = text});
    line.in = scope.receiver(peer, 0, line.in_slot.all(), {.name = text});
    line.given = std::move(given[peer]);
    line.left = line.given.size();
  }
  std::vector<runtime::ChannelEnd*> ends;
  for (const Line& line : lines) ends.insert(ends.end(), {&detail::core_of(line.out), &detail::core_of(line.in)});
  for (runtime::ChannelEnd* const end : ends) end->wait_connected(limit, stated);
  // Step by step, so that no rank waits for room at a peer that waits for room here.
  for (std::size_t first = 0; !std::ranges::all_of(lines, &Line::is_done); first += Chunk().entries.size()) {
    for (Line& line : lines) {
      if (line.left == 0) continue;
      await_room(context, line, limit);
      line.put(first);
    }
    for (Line& line : lines)
      if (!line.told || line.got.size() < line.expected) receive(context, line, limit);
  }
  if (const runtime::ChannelEnd* const open = runtime::close_all(ends, limit)) throw open->not_closed(stated);
  std::map<Rank, std::vector<Entry>> found;
  for (Line& line : lines) found[line.in.peer()] = std::move(line.got);
  return found;
}

}  // namespace sluice::unr
