// SPDX-License-Identifier: Apache-2.0
// How long a put takes to a rank that computes. Rank 0 puts; rank 1 computes on every core and looks for the message
// now and then. No thread waits inside the library, so only the engines move the data, when the scheduler lets them
// run.
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

constexpr double kStepNs = 20e3;    // rank 1 computes so long between two looks at the clock
constexpr double kLookNs = 1e6;     // rank 1 looks for a message so often
constexpr double kQuietNs = 100e6;  // computing without puts: many time slices of the scheduler
constexpr double kPauseNs = 5e6;    // rank 0 sleeps so long before each put
constexpr long kPuts = 10;          // in a round, unless --iters says otherwise

void sleep_ns(double ns) { std::this_thread::sleep_for(std::chrono::duration<double, std::nano>(ns)); }

/// Threads that compute as long as this object lives. The calling thread is one of them: it computes by calling `step`.
class Computing {
 public:
  explicit Computing(int threads) {
    compute(0);  // the first call measures the speed of the core, which must still be idle
    for (int i = 1; i < threads; ++i) {
      others_.emplace_back([this](const std::stop_token& stop) {
        while (!stop.stop_requested()) step();
      });
    }
  }

  void step() {
    compute(kStepNs);
    steps_.fetch_add(1, std::memory_order_relaxed);
  }

  /// Calls `work()`. Returns the steps of all threads per nanosecond meanwhile.
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

/// A channel for the measured puts, and one for an empty answer to each of them. Rank 0 waits for the answer before the
/// next put: otherwise that put might wait for a credit, and the wait would count as a part of its time.
struct Channels {
  sluice::Sender out;
  sluice::Receiver in;
};

/// The measurements of rank 1.
struct Measured {
  std::vector<double> landing_ns;  ///< of each put: from its call to the look that found the message
  std::vector<double> slowdowns;   ///< of each round: how many times slower rank 1 computes than without puts
};

int busy_threads(const Options& options) {
  return options.busy > 0 ? options.busy : static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
}

// The pauses differ in length, so that messages arrive at all times between two looks.
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

std::vector<double> compute_and_look(Computing& computing, Channels& channels, long puts) {
  std::vector<double> landing_ns;
  double looked = now_ns();
  while (static_cast<long>(landing_ns.size()) < puts) {
    computing.step();
    if (now_ns() - looked < kLookNs) continue;
    const auto slot = channels.in.test();
    looked = now_ns();
    if (!slot) continue;
    double put = 0;
    std::memcpy(&put, slot->data(), sizeof(put));
    landing_ns.push_back(looked - put);
    channels.in.release({});
    channels.out.put({}, 0, 0);
  }
  return landing_ns;
}

// Rank 0. The first round includes one-time costs, and is not reported.
void put_in_rounds(Session& session, Channels& channels, long puts) {
  for (int round = 0; round <= session.options.rounds; ++round) {
    session.team().collectives.barrier();
    sleep_ns(kQuietNs);
    session.team().collectives.barrier();
    put_at_intervals(channels, puts);
  }
}

// Rank 1.
Measured compute_in_rounds(Session& session, Channels& channels, long puts) {
  Computing computing(busy_threads(session.options));
  Measured measured;
  for (int round = 0; round <= session.options.rounds; ++round) {
    session.team().collectives.barrier();
    const double end = now_ns() + kQuietNs;
    const double quiet = computing.rate([&] {
      do {
        computing.step();
      } while (now_ns() < end);
    });
    session.team().collectives.barrier();
    std::vector<double> landing_ns;
    const double with_puts = computing.rate([&] { landing_ns = compute_and_look(computing, channels, puts); });
    if (round == 0) continue;
    measured.landing_ns.insert(measured.landing_ns.end(), landing_ns.begin(), landing_ns.end());
    measured.slowdowns.push_back(quiet / with_puts);
  }
  return measured;
}

// Sends the values of rank 1 to rank 0, and divides them into rounds.
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

void measure_progress(Session& session, std::size_t bytes) {
  sluice::Context& context = session.context;
  const Workload workload = session.pair_workload(std::max(bytes, sizeof(double)), 1);
  const long puts = session.options.iterations > 0 ? session.options.iterations : kPuts;
  const sluice::Memory data = context.allocate(workload.bytes);
  const sluice::Memory answer = context.allocate(1);
  const bool first = workload.first;
  Channels channels{context.sender(workload.peer, workload.tag, (first ? data : answer).all()),
                    context.receiver(workload.peer, workload.tag, (first ? answer : data).all())};
  channels.out.wait_connected();
  channels.in.wait_connected();
  Measured measured;
  if (first) {
    put_in_rounds(session, channels, puts);
  } else {
    measured = compute_in_rounds(session, channels, puts);
  }
  const apps::Description description = session.description_of_all(channels.out.describe());
  const auto rounds = static_cast<std::size_t>(session.options.rounds);
  Rounds landing_us = to_rank_0(session, measured.landing_ns, rounds, static_cast<std::size_t>(puts));
  for (auto& round : landing_us) std::ranges::transform(round, round.begin(), in_us);
  report(session, session.row(workload, {"landing_us", "us", {}}, description), landing_us, "a put");
  report(session, session.row(workload, {"slowdown", "times", {}}, description),
         to_rank_0(session, measured.slowdowns, rounds, 1), "a round");
}

}  // namespace

void run_progress(Session& session) {
  for (const std::size_t bytes : session.options.sizes) measure_progress(session, bytes);
}

}  // namespace bench
