// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/contender.hpp"
#include "apps/bench/harness/measure.hpp"
#include "apps/bench/harness/report.hpp"
#include "apps/bench/ours/ours.hpp"
#include "apps/bench/rivals/program.hpp"
#include "apps/bench/rivals/rivals.hpp"
#include "apps/common/collectives.hpp"
#include "apps/common/description.hpp"

#include <sluice/sluice.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace bench {

/// How the time of a unit becomes the value of a metric.
struct Metric {
  std::string name;
  std::string unit;
  std::function<double(double unit_ns)> of;
  bool of_round_trips = false;  ///< a unit is a round trip
};

/// Resident memory of this process, in bytes.
double resident_bytes();

/// One rank's share of a run.
class Session {
 public:
  /// `resident_at_start`: of this process, before it had ranks.
  Session(sluice::Context& context, const Options& options, double resident_at_start);

  /// The ranks together. The first call, by all ranks, opens channels between them.
  Team& team();

  /// Closes the channels that `team` opened, on all ranks: then no rank that ends is lost to the others.
  void close_team();

  bool on_host_stream() const { return options.stream == StreamChoice::host; }
  Drive drive() const { return options.stream == StreamChoice::inline_ ? Drive::in_order : Drive::ahead; }
  /// Units of a sample: all that are enqueued at once, if the host sleeps meanwhile.
  long batch() const;
  Budget budget() const { return {options.rounds, options.iterations, batch()}; }

  /// A workload of this rank and its partner: 0 and 1, 2 and 3, ...
  Workload pair_workload(std::size_t bytes, int default_depth);

  /// How this run was started; the same on all ranks.
  const std::string& launch();

  /// The names after "backend" and "fired by" of the channels of all ranks, at rank 0. All ranks call it.
  apps::Description description_of_all(const std::string& description);

  /// A row with the values that are known before the measurement.
  Row row(const Workload& workload, const Metric& metric, const apps::Description& said);

  sluice::Context& context;
  const Options& options;
  const double resident_at_start;
  std::optional<Report> report;  ///< on rank 0

 private:
  std::unique_ptr<apps::Collectives> collectives_;
  std::optional<Team> team_;
  std::string launch_;
  int device_ = 0;
  RivalPrograms programs_;
};

/// Measures Sluice against the rivals of the column and the further entries, and reports a row.
void measure_row(Session& session, const Workload& workload, RivalColumn column, Ours ours, const Metric& metric,
                 const Budget& budget, std::vector<Entry> beside = {});

/// The row of a measurement whose first entry is Sluice.
Row make_row(Session& session, const Workload& workload, const Metric& metric, const std::string& description,
             const Measurement& measured);

}  // namespace bench
