// SPDX-License-Identifier: Apache-2.0
// Costs of channels outside the hot path: opening, connecting, closing; and the memory of a context.
#include "apps/bench/benches.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace bench {
namespace {

constexpr sluice::Tag kSetupTag = 0;
constexpr sluice::Tag kFirstOfManyTags = 1000;
constexpr int kManyChannels = 64;   // in each direction
constexpr int kMoreChannels = 512;  // so many that what the heap has left for the first does not count
constexpr int kMaxNewPeers = 16;

/// A channel each way between two ranks.
class BothWays {
 public:
  BothWays(sluice::Context& context, sluice::Rank to, sluice::Rank from, sluice::Tag tag, std::size_t bytes)
      : memory_(context.allocate(2 * bytes)), out_(context.sender(to, tag, memory_.slice(0, bytes))),
        in_(context.receiver(from, tag, memory_.slice(bytes, bytes))) {}

  void wait_connected() {
    out_.wait_connected();
    in_.wait_connected();
  }
  void signal() {
    out_.put({}, 0, 0);
    in_.wait({});
    in_.release({});
  }
  void close() {
    out_.close();
    in_.close();
  }
  std::string describe() const { return out_.describe(); }

 private:
  sluice::Memory memory_;
  sluice::Sender out_;
  sluice::Receiver in_;
};

/// Opens a channel each way between ranks 0 and 1, and closes it.
class OpenAndClose : public Contender {
 public:
  OpenAndClose(const Workload& workload, bool with_close) : workload_(workload), with_close_(with_close) {}

  double run(long count) override {
    if (workload_.context.rank() > 1) return 0;
    double taken = 0;
    for (long i = 0; i < count; ++i) {
      const double start = now_ns();
      BothWays link(workload_.context, workload_.peer, workload_.peer, kSetupTag, workload_.bytes);
      link.wait_connected();
      const double connected = now_ns();
      link.close();
      taken += (with_close_ ? now_ns() : connected) - start;
    }
    return taken;
  }

 private:
  const Workload workload_;
  const bool with_close_;
};

void measure_opening(Session& session, const Workload& workload, const char* metric, bool with_close,
                     const std::string& description) {
  Entry entry{"sluice", "ours", std::make_unique<OpenAndClose>(workload, with_close)};
  const Measurement measured = measure(session.team(), std::span(&entry, 1), session.budget());
  Row row = make_row(session, workload, {metric, "us", in_us}, description, measured);
  if (session.report) session.report->add(std::move(row));
}

void report_bytes(Session& session, const Workload& workload, const char* metric, double bytes,
                  const std::string& description) {
  Row row = session.row(workload, {metric, "bytes", {}}, session.description_of_all(description));
  row.summary = {bytes, bytes, bytes, 1};
  row.rounds = 1;
  row.sample = "one reading";
  if (session.report) session.report->add(std::move(row));
}

Neighbour at_distance(const sluice::Context& context, int distance) { return neighbour(context, distance - 1); }

// A barrier over channels to two other ranks only: after so many signals around the ring, each rank knows that all
// ranks have called it.
void wait_for_ring(const sluice::Context& context, BothWays& ring) {
  for (int step = 1; step < context.size(); ++step) ring.signal();
}

// The growth of this process's memory by `work()`, in bytes, of rank 0; 0 of others. Memory is read while all ranks are
// idle, and by rank 0 alone, since reading takes memory that ranks of the same process would count.
template <class Work>
double growth(const sluice::Context& context, BothWays& ring, Work work) {
  const auto in_use = [&] { return context.rank() == 0 ? bytes_in_use() : 0; };
  wait_for_ring(context, ring);
  const double before = in_use();
  wait_for_ring(context, ring);
  work();
  wait_for_ring(context, ring);
  const double after = in_use();
  wait_for_ring(context, ring);
  return after - before;
}

// Opens channels to ranks with which this rank has none. Returns the number of these ranks.
int open_to_new_peers(sluice::Context& context, std::size_t bytes, std::vector<BothWays>& links) {
  std::set<sluice::Rank> peers;
  for (int distance = 2; distance <= context.size() - 2 && static_cast<int>(peers.size()) < kMaxNewPeers; ++distance) {
    const Neighbour ranks = at_distance(context, distance);
    links.emplace_back(context, ranks.to, ranks.from, kSetupTag + 2, bytes);
    peers.insert({ranks.to, ranks.from});
  }
  for (BothWays& link : links) link.wait_connected();
  return static_cast<int>(peers.size());
}

void open_many(sluice::Context& context, std::size_t bytes, int count, std::vector<BothWays>& links) {
  const Neighbour next = at_distance(context, 1);
  for (int i = 0; i < count; ++i)
    links.emplace_back(context, next.to, next.from, kFirstOfManyTags + static_cast<sluice::Tag>(i), bytes);
  for (BothWays& link : links) link.wait_connected();
}

/// Bytes in use by all ranks of this process.
struct Memory {
  double ranks = 0;  ///< when each rank has channels with two others
  double peers = 0;  ///< the growth by `peer_count` more peers of each rank
  int peer_count = 0;
  double channels = 0;  ///< the growth by `channel_count` more channels of each rank in each direction
  int channel_count = 0;
  std::string description;
};

// At first every rank has channels with two others only, however many ranks there are.
Memory measure_memory(Session& session, std::size_t bytes, int channels) {
  sluice::Context& context = session.context;
  const Neighbour next = at_distance(context, 1);
  BothWays ring(context, next.to, next.from, kSetupTag + 1, bytes);
  wait_for_ring(context, ring);
  Memory memory;
  memory.channel_count = channels;
  memory.ranks = resident_bytes() - session.resident_at_start;
  std::vector<BothWays> links;
  memory.peers = growth(context, ring, [&] { memory.peer_count = open_to_new_peers(context, bytes, links); });
  memory.channels = growth(context, ring, [&] { open_many(context, bytes, channels, links); });
  memory.description = ring.describe();
  return memory;
}

int ranks_of_process(Session& session) { return session.placement().launch == "threads" ? session.context.size() : 1; }

MemoryCosts costs_of(const Memory& memory, int ranks_here) {
  return {memory.channels / ranks_here / (2 * memory.channel_count),
          memory.peer_count > 0 ? memory.peers / ranks_here / memory.peer_count : 0};
}

}  // namespace

MemoryCosts measure_memory_costs(Session& session) {
  const Memory memory = measure_memory(session, 1, kMoreChannels);
  return costs_of(memory, ranks_of_process(session));
}

void run_setup(Session& session) {
  const Workload workload = session.pair_workload(std::max<std::size_t>(session.options.sizes.front(), 1), 1);
  const Memory memory = measure_memory(session, workload.bytes, kManyChannels);
  const std::string& description = memory.description;
  const int ranks_here = ranks_of_process(session);
  const MemoryCosts costs = costs_of(memory, ranks_here);
  report_bytes(session, workload, "memory per rank", memory.ranks / ranks_here, description);
  if (memory.peer_count > 0) report_bytes(session, workload, "memory per new peer", costs.peer, description);
  report_bytes(session, workload, "memory per channel", costs.end, description);
  measure_opening(session, workload, "open and connect", false, description);
  measure_opening(session, workload, "open to closed", true, description);
}

}  // namespace bench
