// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// CLI11 takes seconds to compile: only files that parse a command line include it.
namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace apps {

/// The transport of the halo.
enum class Comm { sluice, copies, mpi, mpi_persistent, none };

enum class StreamKind { inline_, host, cuda };

constexpr bool is_mpi(Comm comm) { return comm == Comm::mpi || comm == Comm::mpi_persistent; }

/// Options of every application.
struct CommonOptions {
  Comm comm = Comm::sluice;
  StreamKind stream = StreamKind::inline_;
  std::string backend;                         ///< allowed backends; empty: the library chooses
  bool phases = false;                         ///< time the phases of a step
  std::optional<bool> verify;                  ///< unset: runs of up to kVerifiedUpdates cell updates are verified
  std::string csv, json, image, field, trace;  ///< files to write; empty: none
};

/// Runs of up to this many cell updates are verified by default: up to about a minute on one core.
inline constexpr double kVerifiedUpdates = 8e9;

const char* name(Comm comm);
const char* name(StreamKind kind);

/// `--backend A,B`. An unknown name is bad usage, which one rank reports; the library would report it in every process.
void add_backend_option(CLI::App& app, std::string& backends);

/// `--trace FILE`: `parse` sets the library's own variable, which contexts read.
void add_trace_option(CLI::App& app, std::string& file);

/// The options of every application but those for pictures and fields.
/// @param comm   the names of the option that chooses the transport
/// @param moved  what is transported
void add_run_options(CLI::App& app, CommonOptions& options, const std::string& comm, const std::string& moved);

/// All of them. @param comm  the names of the option that chooses the transport of the halo
void add_common_options(CLI::App& app, CommonOptions& options, const std::string& comm = "--comm");

/// For `transform`: a whole number in decimal digits. CLI11 alone reads 010 as 8, and a number that is too large for a
/// type as its largest number. T is std::int64_t or std::uint64_t.
template <class T = std::int64_t>
CLI::Validator whole_number(std::type_identity_t<T> least = 0,
                            std::type_identity_t<T> most = std::numeric_limits<T>::max());

/// Options that other programs write with one dash: {"csv", "csv-line"} reads `-csv` as `--csv-line`.
using DashAliases = std::vector<std::pair<std::string, std::string>>;

/// Result of parsing a command line: run the program, or print `text` and end with `exit_code`.
struct Parsed {
  bool run = true;
  int exit_code = 0;
  std::string text = {};
  /// With --trace: the fault of its file, in one line; empty if there is none. Other processes may have other folders,
  /// so parsing does not report the fault: `run_program` collects it from all of them.
  std::optional<std::string> trace_fault = {};
};

/// Parses a command line in which long options may have one dash (`-nx 64` as `--nx 64`). Prints nothing.
Parsed parse(CLI::App& app, int argc, const char* const* argv, const DashAliases& aliases = {});

/// Refuses combinations that no application can run. @throws UsageError
void check(const CommonOptions& options);

}  // namespace apps
