// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/session.hpp"

#include "apps/bench/harness/gpu_queue.hpp"
#include "apps/bench/harness/host_queue.hpp"
#include "apps/bench/rivals/mpi.hpp"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace bench {
namespace {

// Memory that ranks have mapped is one rail.
bool has_one_rail(const apps::Names& backends) {
  const auto is_mapped = [](const std::string& backend) { return backend == "threads" || backend == "shm"; };
  return !backends.empty() && std::ranges::all_of(backends, is_mapped);
}

Rounds convert(const Rounds& rounds, const Metric& metric) {
  Rounds values = rounds;
  for (auto& samples : values) std::ranges::transform(samples, samples.begin(), metric.value_of);
  return values;
}

std::optional<RoundTrips> round_trips(const Rounds& rounds, const Metric& metric, long batch) {
  if (!metric.of_round_trips) return std::nullopt;
  RoundTrips all;
  for (const auto& samples : rounds) {
    all.count += batch * static_cast<long>(samples.size());
    for (const double unit_ns : samples) all.seconds += static_cast<double>(batch) * unit_ns / 1e9;
  }
  return all;
}

// VmRSS of /proc/self/status would not do: its counters lag behind by many pages per core.
double smaps_bytes(const char* name) {
  std::ifstream in("/proc/self/smaps_rollup");
  for (std::string word; in >> word;) {
    double kib = 0;
    if (word == name && in >> kib) return kib * 1024;
  }
  throw std::runtime_error(std::string("/proc/self/smaps_rollup has no ") + name);
}

}  // namespace

double resident_bytes() { return smaps_bytes("Rss:"); }

double bytes_in_use() {
  const struct mallinfo2 heap = mallinfo2();
  return static_cast<double>(heap.uordblks + heap.hblkhd) + smaps_bytes("Rss:") - smaps_bytes("Anonymous:");
}

Session::Session(sluice::Context& context_in, const Options& options_in, double resident_at_start_in)
    : context(context_in), options(options_in), resident_at_start(resident_at_start_in) {
  if (options.pin.value()) pin(context);
  const std::vector<Gpu> gpus = gpus_for(options.stream.value());
  // Ranks on one machine get a GPU each, if there are enough.
  if (!gpus.empty()) device_ = context.node_rank() % static_cast<int>(gpus.size());
  if (context.rank() != 0) return;
  const Gpu gpu = gpus.empty() ? Gpu{} : gpus.at(static_cast<std::size_t>(device_));
  report.emplace(this_machine(gpu), options.json, options.csv, options.columns);
}

Team& Session::team() {
  if (!team_) {
    collectives_ = apps::make_sluice_collectives(context);
    team_.emplace(Team{context.rank(), context.size(), *collectives_});
  }
  return *team_;
}

void Session::close_team() {
  team_.reset();
  collectives_.reset();
}

long Session::batch() const {
  if (of_gpu(options.stream)) return GpuQueue::kMaxSteps;
  return on_host_stream() ? HostQueue::kMaxSteps : 0;
}

Workload Session::pair_workload(std::size_t bytes, int default_depth) {
  const bool first = context.rank() % 2 == 0;
  Workload workload{context, options};
  workload.peer = context.rank() + (first ? 1 : -1);
  workload.first = first;
  workload.bytes = bytes;
  workload.depth = options.depth > 0 ? options.depth : default_depth;
  workload.neighbours = options.neighbours;
  workload.drive = drive();
  workload.device = device_;
  workload.programs = &programs_;
  return workload;
}

const Placement& Session::placement() {
  if (placement_) return *placement_;
  placement_.emplace();
  const double process = ::getpid();
  std::array<double, 2> max_and_minus_min = {process, -process};
  team().collectives.max(max_and_minus_min);
  const bool one_process = max_and_minus_min[0] == -max_and_minus_min[1];
  placement_->launch = under_mpi() ? "mpi" : context.size() == 1 ? "alone" : one_process ? "threads" : "sluice-run";

  const int core = bound_core().value_or(-1);
  const std::vector<std::size_t> bytes_of(static_cast<std::size_t>(context.size()), sizeof(core));
  team().collectives.gather(std::as_bytes(std::span(&core, 1)), bytes_of, [&](int, std::span<const std::byte> part) {
    std::memcpy(&placement_->cores.emplace_back(), part.data(), sizeof(core));
  });
  if (std::ranges::find(placement_->cores, -1) != placement_->cores.end()) {
    placement_->cores.clear();
    placement_->too_few_cores = options.pin.value();
  }
  if (context.size() > 1 && context.rank() < 2)
    placement_->line_ns = line_time_ns(context, 1 - context.rank(), context.rank() == 0);
  return *placement_;
}

void Session::measure_line_again() {
  static_cast<void>(placement());
  if (context.size() < 2 || context.rank() > 1) return;
  placement_->line_ns = line_time_ns(context, 1 - context.rank(), context.rank() == 0);
}

std::string Session::how_line_changed() {
  if (!placement_ || context.size() < 2 || context.rank() > 1) return {};
  const auto now = line_time_ns(context, 1 - context.rank(), context.rank() == 0);
  return placement_->line_ns && now ? line_change(*placement_->line_ns, *now) : "";
}

apps::Description Session::description_of_all(const std::string& description) {
  return apps::of_all_ranks(apps::read_description(description), team().collectives, context.size());
}

Row Session::row(const Workload& workload, const Metric& metric, const apps::Description& channels) {
  Row row;
  row.bench = options.bench;
  row.backend = apps::joined(channels.backends);
  row.stream = name(options.stream.value());
  row.memory = name(options.memory);
  row.touch = options.touch;
  row.fired_by = apps::joined(channels.fired_by);
  row.ranks = context.size();
  row.placement = placement();
  row.bytes = workload.bytes;
  row.depth = workload.depth;
  row.window = workload.window;
  row.rails = options.rails > 0                 ? std::optional(options.rails)
              : has_one_rail(channels.backends) ? std::optional(1)
                                                : std::nullopt;
  row.metric = metric.name;
  row.unit = metric.unit;
  return row;
}

Row make_row(Session& session, const Workload& workload, const Metric& metric, const std::string& description,
             const Measurement& measured) {
  Row row = session.row(workload, metric, session.description_of_all(description));
  if (session.context.rank() != 0) return row;
  const Timing& ours = measured.timings.front();
  row.summary = summarise(convert(ours.rounds, metric));
  row.rounds = static_cast<int>(ours.rounds.size());
  row.sample = sample_text(measured.batch);
  row.round_trips = round_trips(ours.rounds, metric, measured.batch);
  for (const Timing& rival : std::span(measured.timings).subspan(1)) {
    const std::vector<double> of_rounds = ratios(rival.rounds, ours.rounds);
    row.rivals.push_back({.name = rival.name,
                          .what = rival.what,
                          .p50 = summarise(convert(rival.rounds, metric)).p50,
                          .ratio = median(of_rounds),
                          .round_trips = round_trips(rival.rounds, metric, measured.batch),
                          .interval = interval_of_median(of_rounds),
                          .goal = goal_of(session.options.goals, metric.name, rival.name, workload.bytes)});
    if (row.floor_drift || !is_floor(rival.name)) continue;
    row.floor_drift = drift(rival.rounds);
    row.drifted_rounds = drifted_rounds(rival.rounds);
  }
  return row;
}

void measure_row(Session& session, const Workload& workload, RivalColumn column, Ours ours, const Metric& metric,
                 const Budget& budget, std::vector<Entry> beside) {
  std::vector<Entry> entries;
  entries.push_back({"sluice", "ours", std::move(ours.contender)});
  std::ranges::move(beside, std::back_inserter(entries));
  for (const Rival* rival : rivals_for(session.options, column)) {
    if (auto contender = (rival->*column)(workload))
      entries.push_back({rival->name, what(*rival, session.options), std::move(contender)});
  }
  const Measurement measured = measure(session.team(), entries, budget);
  Row row = make_row(session, workload, metric, ours.description, measured);
  if (session.report) session.report->add(std::move(row));
}

}  // namespace bench
