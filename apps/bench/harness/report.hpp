// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/options.hpp"
#include "apps/bench/harness/statistics.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace bench {

/// The measured round trips of one contender: their number, and the sum of their times.
struct RoundTrips {
  long count = 0;
  double seconds = 0;
};

/// A rival's part of a row.
struct RivalResult {
  std::string name;
  std::string what;                            ///< its method, for people
  double p50 = 0;                              ///< in the row's unit
  double ratio = 0;                            ///< its time / Sluice's time: above 1 Sluice is faster
  std::optional<RoundTrips> round_trips = {};  ///< unset: a unit is no round trip
  std::optional<Interval> interval = {};       ///< of the ratio, which is the median over rounds; unset: too few rounds
  std::optional<double> goal = {};             ///< what the ratio should be at least; unset: there is no goal
};

/// How a run was started, and where.
struct Placement {
  std::string launch;             ///< for people: "mpi", "threads", "sluice-run" or "alone"
  std::vector<int> cores = {};    ///< at rank 0: the core of each rank; empty if not all of them are bound to one core
  bool too_few_cores = false;     ///< the ranks should have been bound, but are more than the cores
  std::optional<double> line_ns;  ///< at rank 0: how long a cache line needs from its core to that of rank 1
};

/// One result of a bench, a line of the output. docs/benchmarks.md ("JSON") describes the values.
struct Row {
  std::string bench;
  std::string backend;
  std::string stream;
  std::string memory;
  bool touch = false;
  std::string fired_by;
  int ranks = 0;
  std::optional<int> pairs;        ///< pairs of ranks that take part; unset: the bench has no pairs
  std::optional<int> channels;     ///< open each way between two ranks; unset: the bench does not vary them
  std::optional<double> exponent;  ///< of the metric's growth with the channels; unset: none is fitted
  Placement placement;
  std::optional<std::size_t> offset = {};  ///< of the target from the source, modulo a page; unset: not a `copy`
  std::size_t bytes = 0;
  int depth = 0;
  int window = 0;
  std::optional<int> rails = 1;  ///< unset: the library has chosen the rails of each put
  std::string metric;
  std::string unit;
  Summary summary;
  std::optional<Interval> interval = {};  ///< of p50; unset: not a parameter of `model`
  int rounds = 0;
  std::string sample;                 ///< the meaning of a sample, for people
  std::string settings;               ///< settings of the library on which the bench depends; else empty
  std::optional<double> floor_drift;  ///< drift (statistics.hpp) of the floor's rounds; unset: no floor has run
  std::vector<int> drifted_rounds;    ///< those in which the floor drifted (statistics.hpp), counted from 1
  std::vector<RivalResult> rivals;
  std::optional<RoundTrips> round_trips = {};  ///< Sluice's; unset: a unit is no round trip
};

struct Gpu {
  std::string model;   ///< empty: no GPU is used
  std::string driver;  ///< its version
};

/// The GPUs of the vendor of such streams; none unless `stream` is a GPU's.
std::vector<Gpu> gpus_for(StreamChoice stream);

/// The machine and the date of a measurement, and the version of the library.
struct Machine {
  std::string version;
  std::string cpu;
  std::string date;
  Gpu gpu = {};
};
Machine this_machine(const Gpu& gpu);

/// The rows of a run. Prints each row when it is added, and a header before it if the header or a setting differs from
/// the last row's. Rewrites the files with each row, so that they hold all rows so far even if the run is aborted.
class Report {
 public:
  /// `json` and `csv`: files to write; empty: none.
  explicit Report(Machine machine, std::string json = {}, std::string csv = {}, CsvColumns columns = CsvColumns::sluice)
      : machine_(std::move(machine)), json_(std::move(json)), csv_(std::move(csv)), columns_(columns) {}

  /// @throws std::runtime_error if a file cannot be written.
  void add(Row row);
  /// A line for each goal that is for no rival of any row.
  std::vector<std::string> unused(const std::vector<Goal>& goals) const;

  std::string to_json() const;
  std::string to_csv() const;
  /// CUP-ECS's columns: a line for each contender of each row of round trips.
  std::string to_cup_ecs() const;

 private:
  const Machine machine_;
  const std::string json_;
  const std::string csv_;
  const CsvColumns columns_;
  std::string header_;  // the last one that was printed
  std::vector<Row> rows_;
};

/// A printed row: the size, Sluice's p50, p10 and p99, then for each rival its p50, the ratio and the ratio's interval;
/// at the end the verdicts of the row's goals.
std::string row_text(const Row& row);
/// The names of these columns.
std::string header_text(const Row& row);
/// What the column `ratio` is, as a line; empty if there is none.
std::string ratio_text(const Row& row);
/// The settings that the rows under one header have in common, in one line.
std::string settings_text(const Row& row);

}  // namespace bench
