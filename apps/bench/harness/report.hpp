// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/options.hpp"
#include "apps/bench/harness/statistics.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace bench {

/// All that was measured of one contender, where its unit is a round trip.
struct RoundTrips {
  long count = 0;
  double seconds = 0;
};

struct RivalResult {
  std::string name;
  std::string what;
  double p50 = 0;
  double ratio = 0;  ///< above 1: Sluice is better
  std::optional<RoundTrips> round_trips = {};
};

/// One result, as it is printed and written.
struct Row {
  std::string bench;
  std::string backend;
  std::string stream;
  std::string memory;
  bool touch = false;
  std::string fired_by;
  int ranks = 0;
  std::optional<int> pairs;  ///< of ranks that take part; unset: no matter of pairs
  std::string launch;
  std::size_t bytes = 0;
  int depth = 0;
  int window = 0;
  std::optional<int> rails = 1;  ///< unset: as the library chose for each put
  std::string metric;
  std::string unit;
  Summary summary;
  int rounds = 0;
  std::string sample;                 ///< what one sample is
  std::string settings;               ///< of the library, where the bench is about them; empty: no matter
  std::optional<double> floor_drift;  ///< how much the floor moved between rounds; unset: no floor was run
  std::vector<RivalResult> rivals;
  std::optional<RoundTrips> round_trips = {};
};

struct Gpu {
  std::string model;   ///< empty: none is used
  std::string driver;  ///< its version
};

/// Those of the vendor whose streams these are; none for streams that are no GPU's.
std::vector<Gpu> gpus_for(StreamChoice stream);

/// The machine and the build that a row is of.
struct Machine {
  std::string version;
  std::string cpu;
  std::string date;
  Gpu gpu = {};
};
Machine this_machine(const Gpu& gpu);

/// Prints rows as they come, in columns, with a header whenever it or what the rows share changes; and writes them to
/// files, which are whole after each row: a later one may never come.
class Report {
 public:
  /// Without files, it prints only.
  explicit Report(Machine machine, std::string json = {}, std::string csv = {}, CsvColumns columns = CsvColumns::sluice)
      : machine_(std::move(machine)), json_(std::move(json)), csv_(std::move(csv)), columns_(columns) {}

  /// @throws std::runtime_error if a file cannot be written.
  void add(Row row);

  std::string to_json() const;
  std::string to_csv() const;
  /// A line for each contender of a row that is about round trips: all that it ran, and the seconds they took.
  std::string to_cup_ecs() const;

 private:
  const Machine machine_;
  const std::string json_;
  const std::string csv_;
  const CsvColumns columns_;
  std::string header_;  // the last that was printed
  std::vector<Row> rows_;
};

/// The columns of a row, and their header: size, ours, its spread, then each rival and the ratio.
std::string header_text(const Row& row);
/// What rows under one header have in common, for people.
std::string settings_text(const Row& row);
std::string row_text(const Row& row);

}  // namespace bench
