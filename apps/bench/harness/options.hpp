// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/options.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

enum class StreamChoice { inline_, host, cuda, hip };
enum class MemoryChoice { allocated, user };
/// Columns of a CSV file: all values, or those of CUP-ECS's data of ping-pongs.
enum class CsvColumns { sluice, cup_ecs };

const char* name(StreamChoice stream);
const char* name(MemoryChoice memory);

/// The command line. The bench chooses values that are unset or 0.
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
  int ranks = 0;       ///< of the run
  int busy = 0;        ///< threads that compute, for progress; 0: as many as cores
  bool touch = false;  ///< the target reads the payload
  bool pin = false;
  std::vector<std::string> against;  ///< rivals by name; {"all"}: all that can run; {"none"}
  std::string json, csv, trace;      ///< files to write; empty: none
  CsvColumns columns = CsvColumns::sluice;
};

/// `names`: the benches, for the check and the help text. Prints nothing.
apps::Parsed parse(int argc, const char* const* argv, const std::vector<std::string>& names, Options& options);

inline bool of_gpu(std::optional<StreamChoice> stream) {
  return stream == StreamChoice::cuda || stream == StreamChoice::hip;
}

/// "MIN:MAX" or "SIZE" as the powers of two between them, with 0 in front if MIN is 0.
/// @throws apps::UsageError for any other text, and for a range without a power of two.
std::vector<std::size_t> parse_sizes(std::string_view text);

/// "tcp" of `--backend ofi:tcp`; empty if the library may choose another backend.
std::string_view ofi_provider(const Options& options);

/// "a,b" as {"a", "b"}, without empty ones.
std::vector<std::string> split(std::string_view list);

}  // namespace bench
