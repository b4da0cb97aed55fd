// SPDX-License-Identifier: Apache-2.0
// Rank 1 computes on every core and looks now and then; rank 0 puts. No thread waits inside the library for the data,
// so only the engines move it, in the time that the scheduler gives them.
#include "apps/bench/benches.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace bench {
namespace {

constexpr double kChunkNs = 20e3;
constexpr double kLookNs = 1e6;
constexpr double kQuietNs = 100e6;  // many times as long as the scheduler lets a thread keep a core
constexpr double kPauseNs = 5e6;
constexpr long kPuts = 10;

void sleep_ns(double ns) { std::this_thread::sleep_for(std::chrono::duration<double, std::nano>(ns)); }

/// Threads that compute as long as this object lives; the calling thread is one of them during a step.
class Computing {
 public:
  explicit Computing(int threads) {
    compute(0);  // measures the speed of this machine before it is busy
    for (int i = 1; i < threads; ++i) {
      others_.emplace_back([this](const std::stop_token& stop) {
        while (!stop.stop_requested()) step();
      });
    }
  }

  void step() {
    compute(kChunkNs);
    steps_.fetch_add(1, std::memory_order_relaxed);
  }

  /// Steps of all threads in a nanosecond, from now to the end of `work()`.
  template <class Work>
  double rate(Work work) {
    const long before = steps_.load();
    const double taken = timed(work);
    return static_cast<double>(steps_.load() - before) / taken;
  }

 private:
  std::atomic<long> steps_{0};
  std::vector<std::jthread> others_;
};

/// Puts in one direction, and an empty answer to each: so the next put waits for no credit, which would count as its
/// landing.
struct Channels {
  sluice::Sender out;
  sluice::Receiver in;
};

/// The measurements of rank 1.
struct Measured {
  std::vector<double> landings;   ///< from the call of each put to the look that found it, in nanoseconds
  std::vector<double> slowdowns;  ///< of the computing, in each round
};

int busy_threads(const Options& options) {
  return options.busy > 0 ? options.busy : static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
}

// Pauses of different length, so that the puts land at all times between two looks.
void put_at_intervals(Channels& channels, long puts) {
  for (long i = 0; i < puts; ++i) {
    sleep_ns(kPauseNs + kLookNs * std::fmod(0.618 * static_cast<double>(i), 1.0));
    std::byte* const slot = channels.out.acquire({}).data();
    const double now = now_ns();
    std::memcpy(slot, &now, sizeof(now));
    channels.out.put({});
    while (!channels.in.test()) sleep_ns(kLookNs);
    channels.in.release({});
  }
}

void compute_and_look(Computing& computing, Channels& channels, long puts, std::vector<double>& landings) {
  double looked = now_ns();
  for (long landed = 0; landed < puts;) {
    computing.step();
    if (now_ns() - looked < kLookNs) continue;
    const auto slot = channels.in.test();
    looked = now_ns();
    if (!slot) continue;
    double put = 0;
    std::memcpy(&put, slot->data(), sizeof(put));
    landings.push_back(looked - put);
    channels.in.release({});
    channels.out.put({}, 0, 0);
    ++landed;
  }
}

// The first round includes one-time costs, and is not reported.
void drive(Session& session, Channels& channels, long puts) {
  for (int round = 0; round <= session.options.rounds; ++round) {
    session.team().collectives.barrier();
    sleep_ns(kQuietNs);
    session.team().collectives.barrier();
    put_at_intervals(channels, puts);
  }
}

Measured watch(Session& session, Channels& channels, long puts) {
  Computing computing(busy_threads(session.options));
  Measured seen;
  for (int round = 0; round <= session.options.rounds; ++round) {
    session.team().collectives.barrier();
    const double end = now_ns() + kQuietNs;
    const double quiet = computing.rate([&] {
      while (now_ns() < end) computing.step();
    });
    session.team().collectives.barrier();
    std::vector<double> landings;
    const double busy = computing.rate([&] { compute_and_look(computing, channels, puts, landings); });
    if (round == 0) continue;
    seen.landings.insert(seen.landings.end(), landings.begin(), landings.end());
    seen.slowdowns.push_back(quiet / busy);
  }
  return seen;
}

// Sends the values of rank 1 to rank 0, as so many rounds.
Rounds to_rank_0(Session& session, const std::vector<double>& values, std::size_t rounds, std::size_t of_round) {
  std::vector<double> all(rounds * of_round);
  const std::vector<std::size_t> bytes_of = {0, all.size() * sizeof(double)};
  session.team().collectives.gather(std::as_bytes(std::span(values)), bytes_of,
                                    [&](int, std::span<const std::byte> part) {
                                      if (!part.empty()) std::memcpy(all.data(), part.data(), part.size());
                                    });
  Rounds split;
  for (auto at = all.begin(); at != all.end(); at += static_cast<std::ptrdiff_t>(of_round))
    split.emplace_back(at, at + static_cast<std::ptrdiff_t>(of_round));
  return split;
}

std::string settings(const Options& options) {
  const auto variable = [](const char* name, const char* unset) {
    const char* const value = std::getenv(name);
    return fmt::format("{}={}", name, value == nullptr ? unset : value);
  };
  return fmt::format("{} {}, {} busy threads", variable("SLUICE_ENGINE_CPU", "any"),
                     variable("SLUICE_ENGINE_POLL", "0s"), busy_threads(options));
}

void report(Session& session, Row row, const Rounds& rounds, const char* sample) {
  if (!session.report) return;
  row.summary = summarise(rounds);
  row.rounds = static_cast<int>(rounds.size());
  row.sample = sample;
  row.settings = settings(session.options);
  session.report->add(std::move(row));
}

void measure_progress(Session& session, std::size_t asked) {
  sluice::Context& context = session.context;
  const Workload workload = session.pair_workload(std::max(asked, sizeof(double)), 1);
  const long puts = session.options.iterations > 0 ? session.options.iterations : kPuts;
  const sluice::Memory data = context.allocate(workload.bytes);
  const sluice::Memory answer = context.allocate(1);
  const bool first = workload.first;
  Channels channels{context.sender(workload.peer, workload.tag, (first ? data : answer).all()),
                    context.receiver(workload.peer, workload.tag, (first ? answer : data).all())};
  channels.out.wait_connected();
  channels.in.wait_connected();
  Measured seen;
  if (first) {
    drive(session, channels, puts);
  } else {
    seen = watch(session, channels, puts);
  }
  const apps::Description said = session.description_of_all(channels.out.describe());
  const auto rounds = static_cast<std::size_t>(session.options.rounds);
  Rounds landings = to_rank_0(session, seen.landings, rounds, static_cast<std::size_t>(puts));
  for (auto& round : landings) std::ranges::transform(round, round.begin(), [](double ns) { return ns / 1e3; });
  report(session, session.row(workload, {"landing_us", "us", {}}, said), landings, "a put");
  report(session, session.row(workload, {"slowdown", "times", {}}, said), to_rank_0(session, seen.slowdowns, rounds, 1),
         "a round");
}

}  // namespace

void run_progress(Session& session) {
  for (const std::size_t bytes : session.options.sizes) measure_progress(session, bytes);
}

}  // namespace bench
