// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/cores.hpp"

#include "apps/bench/harness/counter.hpp"
#include "apps/bench/harness/exchange.hpp"
#include "apps/bench/harness/queue.hpp"
#include "apps/bench/harness/shared_pages.hpp"
#include "apps/bench/harness/statistics.hpp"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>

namespace bench {
namespace {

// Number of the machine: equal in all processes that can map each other's memory by /proc.
std::size_t machine() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  const std::string boot((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  return std::hash<std::string>()(boot + std::filesystem::read_symlink("/proc/self/ns/pid").string());
}

// The last value that the first rank writes; the other one answers with the next value, and then leaves the line alone.
constexpr std::uint64_t kEnd = std::numeric_limits<std::uint64_t>::max() - 1;

// Half of a round trip of the line, in nanoseconds. Other programs on these cores could make it take long.
double lead(Counter& line) {
  constexpr int kRounds = 101;
  constexpr long kTrips = 20;
  constexpr double kLimitNs = 10e6;
  std::uint64_t count = 0;
  std::vector<double> hops;
  for (const double end = now_ns() + kLimitNs; hops.size() < kRounds && (hops.empty() || now_ns() < end);) {
    const double taken = timed_steps(kTrips, [&] {
      line.store(count + 1, std::memory_order_release);
      await_count(line, count += 2);
    });
    hops.push_back(taken / (2.0 * kTrips));
  }
  line.store(kEnd, std::memory_order_release);
  await_count(line, kEnd + 1);
  return median(hops);
}

void follow(Counter& line) {
  for (std::uint64_t count = 0; count <= kEnd;) {
    count = await_count(line, count + 1) + 1;
    line.store(count, std::memory_order_release);
  }
}

}  // namespace

Cores allowed_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof(mask), &mask) != 0)
    throw std::runtime_error("the cores on which this rank may run are not known");
  Cores cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<unsigned>(core), &mask)) cores.push_back(core);
  }
  return cores;
}

std::optional<int> own_core(const Cores& allowed, std::size_t place, std::size_t ranks) {
  if (allowed.size() < ranks) return std::nullopt;
  return allowed[place % allowed.size()];
}

void pin(const sluice::Context& context) {
  // An MPI without its own shared memory reports each rank as a machine of its own.
  const int place = context.node_size() > 1 ? context.node_rank() : context.rank();
  const auto core =
      own_core(allowed_cores(), static_cast<std::size_t>(place), static_cast<std::size_t>(context.node_size()));
  if (!core) return;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(static_cast<unsigned>(*core), &mask);
  if (::sched_setaffinity(0, sizeof(mask), &mask) != 0)
    throw std::runtime_error("this rank may not choose its core: --no-pin");
}

std::optional<int> bound_core() {
  const Cores cores = allowed_cores();
  return cores.size() == 1 ? std::optional(cores.front()) : std::nullopt;
}

std::optional<double> line_time_ns(sluice::Context& context, sluice::Rank peer, bool first) {
  const std::size_t mine = machine();
  if (exchange(context, peer, mine) != mine) return std::nullopt;
  const SharedPages pages(kLine, [&](const SharedPages::Place& place) { return exchange(context, peer, place); });
  if (first) return lead(*reinterpret_cast<Counter*>(pages.mine()));
  follow(*reinterpret_cast<Counter*>(pages.theirs()));
  return std::nullopt;
}

std::string line_change(double begin_ns, double end_ns) {
  constexpr double kMuch = 1.5;
  if (std::max(begin_ns, end_ns) < kMuch * std::min(begin_ns, end_ns)) return {};
  return fmt::format(
      "at the end a line takes {:.0f} ns, at the begin it took {:.0f}: the cores were moved, so rows that were "
      "measured at different times do not go together",
      end_ns, begin_ns);
}

}  // namespace bench
