// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// CLI11 takes seconds to compile: only what parses a command line includes it.
namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace apps {

/// What moves the halo.
enum class Comm { sluice, copies, mpi, mpi_persistent, none };

enum class StreamKind { inline_, host, cuda };

constexpr bool is_mpi(Comm comm) { return comm == Comm::mpi || comm == Comm::mpi_persistent; }

/// What every application takes.
struct CommonOptions {
  Comm comm = Comm::sluice;
  StreamKind stream = StreamKind::inline_;
  std::string backend;                         ///< allowed backends; empty: the library chooses
  bool phases = false;                         ///< time the phases of a step
  std::optional<bool> verify;                  ///< unset: up to kVerifiedUpdates cell updates
  std::string csv, json, image, field, trace;  ///< files to write; empty: none
};

/// Runs up to this many cell updates are verified unless told otherwise: up to about a minute for one core.
inline constexpr double kVerifiedUpdates = 8e9;

const char* name(Comm comm);
const char* name(StreamKind kind);

/// `--backend A,B`. An unknown name is bad usage, so that one rank says so: the library itself would in every process.
void add_backend_option(CLI::App& app, std::string& backends);

/// `--trace FILE`: `parse` sets the library's own variable, which contexts read.
void add_trace_option(CLI::App& app, std::string& file);

/// @param comm  the names of the option that chooses what moves the halo
void add_common_options(CLI::App& app, CommonOptions& options, const std::string& comm = "--comm");

/// For `transform`: a whole number in decimal digits. CLI11 alone takes 010 for 8, and what is too large for a type for
/// its largest number. T is std::int64_t or std::uint64_t.
template <class T = std::int64_t>
CLI::Validator whole_number(std::type_identity_t<T> least = 0,
                            std::type_identity_t<T> most = std::numeric_limits<T>::max());

/// Options that others know with one dash: {"csv", "csv-line"} reads `-csv` as `--csv-line`.
using DashAliases = std::vector<std::pair<std::string, std::string>>;

/// What a command line turned out to be: run; or print `text` and end with `exit_code`.
struct Parsed {
  bool run = true;
  int exit_code = 0;
  std::string text = {};
  /// With --trace: what is wrong with its file, in a line; empty: nothing. Other processes may have other folders, so
  /// this is no matter of the command line: `run_program` asks them all.
  std::optional<std::string> trace_fault = {};
};

/// Parses a command line in which long options may have one dash (`-nx 64` as `--nx 64`). Prints nothing.
Parsed parse(CLI::App& app, int argc, const char* const* argv, const DashAliases& aliases = {});

/// Refuses combinations that no application can run. @throws UsageError
void check(const CommonOptions& options);

}  // namespace apps
