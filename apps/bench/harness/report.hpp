// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/options.hpp"
#include "apps/bench/harness/statistics.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace bench {

/// All measured round trips of one contender, if its unit is a round trip.
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
  std::optional<int> pairs;  ///< of ranks that take part; unset: the bench has no pairs
  std::string launch;
  std::size_t bytes = 0;
  int depth = 0;
  int window = 0;
  std::optional<int> rails = 1;  ///< unset: the library chose for each put
  std::string metric;
  std::string unit;
  Summary summary;
  int rounds = 0;
  std::string sample;                 ///< what a sample is
  std::string settings;               ///< of the library, if the bench varies them; else empty
  std::optional<double> floor_drift;  ///< how much the floor moved between rounds; unset: no floor was run
  std::vector<RivalResult> rivals;
  std::optional<RoundTrips> round_trips = {};
};

struct Gpu {
  std::string model;   ///< empty: no GPU is used
  std::string driver;  ///< its version
};

/// The GPUs of the vendor whose streams these are; none for other streams.
std::vector<Gpu> gpus_for(StreamChoice stream);

/// The machine and the build of a row.
struct Machine {
  std::string version;
  std::string cpu;
  std::string date;
  Gpu gpu = {};
};
Machine this_machine(const Gpu& gpu);

/// Prints rows in columns as soon as they are added, with a header whenever it or the common settings change. Also
/// writes them to files, which are complete after each row, because no later row may follow.
class Report {
 public:
  /// Without files, it prints only.
  explicit Report(Machine machine, std::string json = {}, std::string csv = {}, CsvColumns columns = CsvColumns::sluice)
      : machine_(std::move(machine)), json_(std::move(json)), csv_(std::move(csv)), columns_(columns) {}

  /// @throws std::runtime_error if a file cannot be written.
  void add(Row row);

  std::string to_json() const;
  std::string to_csv() const;
  /// A line for each contender of a row of round trips: their number and their seconds in all.
  std::string to_cup_ecs() const;

 private:
  const Machine machine_;
  const std::string json_;
  const std::string csv_;
  const CsvColumns columns_;
  std::string header_;  // the last header printed
  std::vector<Row> rows_;
};

/// The columns of a row, and their header: size, Sluice's time, its spread, then each rival and the ratio.
std::string header_text(const Row& row);
/// The common settings of the rows under one header, for people.
std::string settings_text(const Row& row);
std::string row_text(const Row& row);

}  // namespace bench
