// SPDX-License-Identifier: Apache-2.0
// LogGP measured, and what follows from it beside what is measured.
#include "apps/bench/benches.hpp"
#include "apps/bench/model/fit.hpp"
#include "apps/bench/model/predict.hpp"
#include "apps/bench/model/prtt.hpp"
#include "apps/bench/model/written.hpp"
#include "apps/common/report.hpp"

#include <fmt/core.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

using sluice::collectives::LogGP;
using sluice::collectives::Time;
using TimesOfRounds = std::vector<Times>;  // the last: medians of all rounds

constexpr std::size_t kSmallest = 8;
constexpr int kManyRanks[] = {16, 256, 4096, 100'000};
constexpr std::size_t kManySizes[] = {8, 4096, 65536};

/// Predictions divided by what was measured.
struct Ratios {
  std::vector<double> all;
  std::vector<double> as_measured;  ///< while a line took as long as when the parameters were measured
};

using Grid = std::map<std::string, Ratios>;  // by subject

/// Adds a contender's time to the times of each round, and the median of all to the last.
template <class Add>
void add_times(const Timing& timing, double per_unit, TimesOfRounds& times, Add add) {
  const std::vector<double> rounds = medians(timing.rounds);
  for (std::size_t i = 0; i + 1 < times.size(); ++i) add(times[i], rounds[i] / per_unit);
  add(times.back(), median(rounds) / per_unit);
}

Workload train_workload(Session& session, std::size_t bytes) { return session.pair_workload(bytes, kTrain); }

std::vector<Timing> measure_trains(Session& session, const Workload& workload,
                                   std::initializer_list<std::pair<Train, int>> trains, std::string& description) {
  std::vector<Entry> entries;
  sluice::Tag tag = 0;
  for (const auto& [train, messages] : trains) {
    Workload one = workload;
    one.tag = tag;
    tag += kTrain + 1;
    Prtt made = make_prtt(one, train, messages);
    description = made.description;
    entries.push_back({"sluice", "ours", std::move(made.contender)});
  }
  return measure(session.team(), entries, session.budget()).timings;
}

/// Rank 0's times; other ranks have none.
TimesOfRounds measure_times(Session& session, std::string& description) {
  const auto rounds = static_cast<std::size_t>(session.options.rounds);
  TimesOfRounds times(rounds + 1);
  const bool keeps = session.context.rank() == 0;
  const auto work = measure_trains(session, train_workload(session, kSmallest),
                                   {{Train::puts, kTrain}, {Train::receives, kTrain}}, description);
  if (keeps) {
    add_times(work[0], kTrain, times, [](Times& of, double ns) { of.put = ns; });
    add_times(work[1], kTrain, times, [](Times& of, double ns) { of.receive = ns; });
  }
  for (const std::size_t bytes : session.options.sizes) {
    const auto trains = measure_trains(
        session, train_workload(session, bytes),
        {{Train::answered, 1}, {Train::answered, kTrain}, {Train::copied, 1}, {Train::combined, 1}}, description);
    if (!keeps) continue;
    add_times(trains[0], 1, times, [&](Times& of, double ns) { of.one.push_back({bytes, ns}); });
    add_times(trains[1], 1, times, [&](Times& of, double ns) { of.train.push_back({bytes, ns}); });
    add_times(trains[2], 1, times, [&](Times& of, double ns) { of.copied.push_back({bytes, ns}); });
    add_times(trains[3], 1, times, [&](Times& of, double ns) { of.combined.push_back({bytes, ns}); });
  }
  return times;
}

/// Parameters of two placements of the cores would fit neither.
TimesOfRounds measure_times_in_one_place(Session& session, std::string& description) {
  constexpr int kTries = 4;
  for (int tried = 1;; ++tried) {
    session.measure_line_again();
    TimesOfRounds times = measure_times(session, description);
    const std::string changed = session.how_line_changed();
    std::array<double, 1> moved{changed.empty() ? 0.0 : 1.0};  // which rank 0 knows
    session.team().collectives.max(moved);
    if (moved[0] == 0) return times;
    if (session.report) apps::print("# the parameters, try {}: {}\n", tried, changed);
    if (tried == kTries) return times;
  }
}

/// A row for a parameter, with its value in each round; what costs nothing has none.
void report_parameter(Session& session, const Row& like, const std::string& name, const char* unit, double value,
                      const std::vector<double>& of_rounds) {
  if (value <= 0) return apps::print("# {} of {} bytes: 0 {}\n", name, like.bytes, unit);
  Row row = like;
  row.metric = name;
  row.unit = unit;
  Rounds rounds;
  for (const double one : of_rounds) rounds.push_back({one});
  row.summary = summarise(rounds);
  row.summary.p50 = value;
  row.rounds = static_cast<int>(of_rounds.size());
  row.sample = "a round";
  row.interval = interval_of_median(of_rounds);
  session.report->add(std::move(row));
}

template <class Of>
void report_parameter(Session& session, const Row& like, const std::string& name, const char* unit, const LogGP& costs,
                      const std::vector<LogGP>& of_rounds, Of of) {
  std::vector<double> values;
  values.reserve(of_rounds.size());
  for (const LogGP& one : of_rounds) values.push_back(of(one));
  report_parameter(session, like, name, unit, of(costs), values);
}

void report_parameters(Session& session, const Row& like, const LogGP& costs, const std::vector<LogGP>& of_rounds) {
  const auto scalar = [&](const char* name, double LogGP::*of) {
    report_parameter(session, like, name, "ns", costs, of_rounds, [of](const LogGP& one) { return one.*of; });
  };
  scalar("L", &LogGP::latency);
  scalar("o_s", &LogGP::send);
  scalar("o_r", &LogGP::receive);
  scalar("g", &LogGP::gap);
  using sluice::collectives::ByteCost;
  const auto lines = [&](const char* name, ByteCost LogGP::*of) {
    for (std::size_t i = 0; i < (costs.*of).lines().size(); ++i) {
      Row row = like;
      row.bytes = (costs.*of).lines()[i].from;
      const auto at = [of, i](const LogGP& one) {
        return (one.*of).lines().size() > i ? (one.*of).lines()[i].per_byte : 0;
      };
      report_parameter(session, row, name, "ns/B", costs, of_rounds, at);
    }
  };
  lines("G", &LogGP::bytes);
  lines("way", &LogGP::way);
  lines("copy", &LogGP::copy);
  lines("combine", &LogGP::combine);
}

/// A row of what was measured, with what was predicted as if it were a rival.
void report_beside(Session& session, const Workload& workload, const Metric& metric, const std::string& description,
                   const Measurement& measured, double predicted_ns, const std::string& subject, Grid& grid) {
  Row row = make_row(session, workload, metric, description, measured);
  const bool moved = !session.how_line_changed().empty();  // all ranks ask
  if (!session.report) return;
  std::vector<double> of_rounds;
  for (const double round : medians(measured.timings.front().rounds)) of_rounds.push_back(predicted_ns / round);
  const double ratio = median(of_rounds);
  row.rivals.push_back({.name = "predicted",
                        .what = "by the parameters that this run has measured",
                        .p50 = metric.value_of(predicted_ns),
                        .ratio = ratio,
                        .interval = interval_of_median(of_rounds)});
  grid[subject].all.push_back(ratio);
  if (!moved) grid[subject].as_measured.push_back(ratio);
  session.report->add(std::move(row));
}

void compare(Session& session, const Workload& workload, const Metric& metric, Ours ours, double predicted_ns,
             const std::string& subject, Grid& grid) {
  std::vector<Entry> entries;
  entries.push_back({"sluice", "ours", std::move(ours.contender)});
  const Measurement measured = measure(session.team(), entries, session.budget());
  report_beside(session, workload, metric, ours.description, measured, predicted_ns, subject, grid);
}

void compare_pairs(Session& session, const sluice::collectives::Model& model, Grid& grid) {
  using sluice::collectives::Landed;
  constexpr int kModelWindow = 64;
  for (const std::size_t bytes : session.options.sizes) {
    Workload workload = session.pair_workload(bytes, 1);
    const double way = model.one_way(bytes, Landed::in_place).total();
    compare(session, workload, {"latency", "us", half_in_us, true}, make_ping_pong(workload), 2 * way, "ping-pong",
            grid);
    workload.depth = kTrain;
    workload.window = kModelWindow;
    const double window = model.sends(kModelWindow, bytes).total() + model.arrival(bytes).total() +
                          model.one_way(0, Landed::in_place).total();
    const double moved = static_cast<double>(bytes) * kModelWindow;
    compare(session, workload, {"bandwidth", "MB/s", [moved](double ns) { return moved / ns * 1e3; }},
            make_flood(workload), window, "bandwidth", grid);
  }
}

void compare_steps(Session& session, const sluice::collectives::Model& model, Grid& grid) {
  for (const int neighbours : {4, 26}) {
    for (const std::size_t bytes : session.options.sizes) {
      Workload workload = session.pair_workload(bytes, 2);
      workload.neighbours = neighbours;
      const Time time = model.exchange(neighbours, bytes, sluice::collectives::Landed::in_place);
      compare(session, workload, {fmt::format("step, {} neighbours", neighbours), "us", in_us}, make_halo(workload),
              time.total(), "halo", grid);
    }
  }
}

/// By the time of a barrier.
double measure_step(Session& session, const LogGP& costs) {
  Workload workload = session.pair_workload(0, 1);
  workload.collective = Collective::barrier;
  Ours ours = make_collective(workload);
  const Ran ran = what_ran(ours.description);
  std::vector<Entry> entries;
  entries.push_back({"sluice", "ours", std::move(ours.contender)});
  const Measurement measured = measure(session.team(), entries, session.budget());
  if (!session.report) return 0;
  return step_of(costs, session.context.size(), ran.ways, median(medians(measured.timings.front().rounds)));
}

void compare_collectives(Session& session, const sluice::collectives::Model& model, Grid& grid) {
  constexpr std::pair<Collective, const char*> kAll[] = {{Collective::broadcast, "broadcast"},
                                                         {Collective::allreduce, "allreduce"},
                                                         {Collective::allgather, "allgather"},
                                                         {Collective::alltoall, "alltoall"}};
  for (const auto& [collective, name] : kAll) {
    for (const std::size_t bytes : session.options.sizes) {
      Workload workload = session.pair_workload(bytes, 1);
      workload.collective = collective;
      Ours ours = make_collective(workload);
      const Ran ran = what_ran(ours.description);
      const std::optional<Time> time = predict(model, collective, ran, session.context.size(), bytes);
      if (time) {
        compare(session, workload, {name, "us", in_us}, std::move(ours), time->total(), "collectives", grid);
      } else if (session.report) {
        apps::print("# no prediction of {} of {} bytes by '{}'\n", name, bytes, ran.algorithm);
      }
    }
  }
}

void print_errors(const Grid& grid) {
  const std::map<std::string, double> goals{{"ping-pong", 20}, {"halo", 30}, {"collectives", 30}};
  for (const auto& [subject, ratios] : grid) {
    const auto goal = goals.find(subject);
    apps::print("# {}\n", error_text(subject, ratios.all, ratios.as_measured,
                                     goal == goals.end() ? std::nullopt : std::optional(goal->second)));
  }
}

void print_scaled(const sluice::collectives::Model& model, const MemoryCosts& memory) {
  apps::print(
      "# by the closed forms, one rank for each such link; memory and ends of channels of the rank that has most\n");
  apps::print(
      "# memory: {:.0f} bytes for each end of a channel and {} for each peer, what the collective keeps, and the "
      "result\n",
      memory.end, memory.peer > 0 ? fmt::format("{:.0f}", memory.peer) : "none");
  apps::print("# {:>7} {:>6} {:<10} {:<28} {:>12} {:>10} {:>9}  {}\n", "ranks", "bytes", "what", "algorithm", "us",
              "MiB/rank", "ends", "limit");
  for (const int ranks : kManyRanks) {
    for (const std::size_t bytes : kManySizes) {
      for (const Scaled& row : scale_to(model, memory, ranks, bytes))
        apps::print("{:>9} {:>6} {:<10} {:<28} {:>12.1f} {:>10.2f} {:>9.0f}  {}\n", ranks, bytes, row.collective,
                    row.algorithm, row.time.total() / 1e3, row.memory / (1U << 20U), row.ends, row.limit);
    }
  }
}

/// Keeps the other section of the file: the runs over two backends make one file.
void write_parameters(const Session& session, const LogGP& costs, const Row& row) {
  const std::string& path = session.options.model;
  if (path.empty()) return;
  const bool mapped = row.backend == "shm" || row.backend == "threads";
  apps::write_text(path, merged_parameters(parameters_in(path), mapped ? "mapped" : "network", row.backend, costs));
}

}  // namespace

void run_model(Session& session) {
  if (!session.options.model.empty()) (void)parameters_in(session.options.model);  // all ranks, before the work
  std::string description;
  const MemoryCosts memory = measure_memory_costs(session);
  const TimesOfRounds times = measure_times_in_one_place(session, description);
  Row like = session.row(session.pair_workload(0, kTrain), {"", "", {}}, session.description_of_all(description));
  LogGP costs;
  if (session.report) {
    costs = fit(times.back());
    std::vector<LogGP> of_rounds;
    for (std::size_t i = 0; i + 1 < times.size(); ++i) of_rounds.push_back(fit(times[i], &costs));
    report_parameters(session, like, costs, of_rounds);
  }
  Grid grid;
  const sluice::collectives::Model of_messages(costs);
  compare_pairs(session, of_messages, grid);
  compare_steps(session, of_messages, grid);
  costs.step = measure_step(session, costs);
  if (session.report) {
    report_parameter(session, like, "step", "ns", costs.step, {costs.step});
    write_parameters(session, costs, like);
  }
  const sluice::collectives::Model model(costs);
  compare_collectives(session, model, grid);
  if (!session.report) return;
  print_errors(grid);
  print_scaled(model, memory);
}

}  // namespace bench
