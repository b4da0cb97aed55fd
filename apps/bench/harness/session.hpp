// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/contender.hpp"
#include "apps/bench/harness/cores.hpp"
#include "apps/bench/harness/measure.hpp"
#include "apps/bench/harness/report.hpp"
#include "apps/bench/ours/ours.hpp"
#include "apps/bench/rivals/program.hpp"
#include "apps/bench/rivals/rivals.hpp"
#include "apps/common/description.hpp"
#include "apps/common/host_collectives.hpp"

#include <sluice/sluice.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace bench {

/// The microseconds of a unit, and of half a round trip.
inline double in_us(double unit_ns) { return unit_ns / 1e3; }
inline double half_in_us(double round_trip_ns) { return round_trip_ns / 2e3; }

/// A value that is reported, and how it follows from a measured time.
struct Metric {
  std::string name;
  std::string unit;
  std::function<double(double unit_ns)> value_of;  ///< turns the time of a unit, in nanoseconds, into the metric
  bool of_round_trips = false;                     ///< true if a unit is a round trip
};

/// The resident memory of this process, in bytes.
double resident_bytes();

/// The bytes of the heap that this process uses, and those that are resident of memory that it maps from files. Unlike
/// resident memory, it grows also where the heap has room from before.
double bytes_in_use();

/// One rank's share of a run.
class Session {
 public:
  /// `resident_at_start`: the resident memory of this process before it made ranks, in bytes.
  Session(sluice::Context& context, const Options& options, double resident_at_start);

  /// All ranks. All ranks make the first call together, which opens channels between them.
  Team& team();

  /// Closes the channels that `team` has opened. All ranks call it before one of them ends on its own: a channel to a
  /// rank that ends would fail.
  void close_team();

  bool on_host_stream() const { return options.stream == StreamChoice::host; }
  Drive drive() const { return options.stream == StreamChoice::inline_ ? Drive::in_order : Drive::ahead; }
  /// The units that are enqueued at once on the stream of this run; 0 in program order. See Budget::batch.
  long batch() const;
  Budget budget() const { return {options.rounds, options.iterations, batch()}; }

  /// A workload of this rank and its partner. The partners are ranks 0 and 1, 2 and 3, ...
  Workload pair_workload(std::size_t bytes, int default_depth);

  /// How this run was started, and where. All ranks make the first call.
  const Placement& placement();

  /// What was measured before is over: rows from here on have the time that a line takes now. All ranks call it.
  void measure_line_again();

  /// Whether a line takes as long as it did: if not, a sentence at rank 0. All ranks call it.
  std::string how_line_changed();

  /// Reads a description of this rank's channels and adds, at rank 0, those of all ranks. All ranks call it.
  apps::Description description_of_all(const std::string& description);

  /// A row with the values that are known before the measurement.
  Row row(const Workload& workload, const Metric& metric, const apps::Description& channels);

  sluice::Context& context;
  const Options& options;
  const double resident_at_start;
  std::optional<Report> report;  ///< on rank 0

 private:
  std::unique_ptr<apps::HostCollectives> collectives_;
  std::optional<Team> team_;
  std::optional<Placement> placement_;
  int device_ = 0;
  RivalPrograms programs_;
};

/// Measures Sluice, the entries of `beside`, and the rivals of the column in turns, and reports a row.
void measure_row(Session& session, const Workload& workload, RivalColumn column, Ours ours, const Metric& metric,
                 const Budget& budget, std::vector<Entry> beside = {});

/// The row of a measurement whose first entry is Sluice.
Row make_row(Session& session, const Workload& workload, const Metric& metric, const std::string& description,
             const Measurement& measured);

}  // namespace bench
