// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/goals.hpp"
#include "apps/common/options.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {

enum class StreamChoice { inline_, host, cuda, hip };
enum class MemoryChoice { allocated, user };
/// Columns of a CSV file: all values, or those of CUP-ECS's data of ping-pongs.
enum class CsvColumns { sluice, cup_ecs };

const char* name(StreamChoice stream);
const char* name(MemoryChoice memory);

/// The command line. For a value that is unset or 0, the bench has a default.
struct Options {
  std::string bench;
  std::string backend;  ///< allowed backends; empty: the library chooses
  std::optional<StreamChoice> stream;
  MemoryChoice memory = MemoryChoice::allocated;
  std::vector<std::size_t> sizes;  ///< of messages, in bytes
  int depth = 0;
  int window = 0;
  int rails = 0;  ///< 0: the library chooses
  long iterations = 0;
  int rounds = 20;
  int neighbours = 4;
  int pairs = 0;
  int channels = 0;  ///< of the bench `scale`, each way between two ranks; 0: it measures pairs
  int ranks = 0;     ///< the ranks of the run, not an option
  int busy = 0;      ///< the threads of the bench `progress` that compute; 0: as many as cores
  std::vector<std::size_t> offsets = {0, 1, 8, 16, 32, 64, 128, 2048, 4032, 4064, 4080, 4095};  ///< of the bench `copy`
  bool touch = false;                ///< the target reads the payload; in round trips, the source is written
  std::optional<bool> pin;           ///< each rank to a core
  bool batch = false;                ///< of the bench `rate`: also by the verbs of several epochs
  std::vector<std::string> against;  ///< rivals by name; {"all"}: all that can run; {"none"}
  std::vector<Goal> goals;           ///< of the ratios
  std::string json, csv, trace;      ///< files to write; empty: none
  std::string model;                 ///< of the bench `model`: a file for SLUICE_MODEL; empty: none
  CsvColumns columns = CsvColumns::sluice;
};

/// The name of each bench, and what it measures.
using BenchNames = std::vector<std::pair<std::string, std::string>>;

/// Parses the command line into `options`, and prints nothing.
apps::Parsed parse(int argc, const char* const* argv, const BenchNames& benches, Options& options);

inline bool of_gpu(std::optional<StreamChoice> stream) {
  return stream == StreamChoice::cuda || stream == StreamChoice::hip;
}

/// "MIN:MAX" or "SIZE" as the powers of two between them, with 0 in front if MIN is 0; or several of these, separated
/// by commas. @throws apps::UsageError for any other text, and for a range without a power of two.
std::vector<std::size_t> parse_sizes(std::string_view text);

/// The provider of `--backend ofi:PROVIDER`; empty if that is not the only backend that the library may choose.
std::string_view ofi_provider(const Options& options);

/// {"a", "b"} for "a,b", without empty parts.
std::vector<std::string> split(std::string_view list);

}  // namespace bench
