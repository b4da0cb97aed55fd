// SPDX-License-Identifier: Apache-2.0
#include "base/env.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/network.hpp"
#include "base/text.hpp"

namespace sluice::base {

namespace {

using std::chrono::nanoseconds;

// Thrown for a bad value; the caller adds the variable's name and the value.
struct BadValue {
  const char* expected;
};

/// Reads a number and the unit behind it: "250ms" is {250, 1e6}.
template <class Number, std::size_t Units>
std::pair<Number, Number> number_and_unit(std::string_view text,
                                          const std::pair<std::string_view, Number> (&units)[Units],
                                          const char* expected) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view name = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const auto& [unit, factor] : units) {
    if (error == std::errc() && unit == name) return {number, factor};
  }
  throw BadValue{expected};
}

nanoseconds duration(std::string_view text) {
  static constexpr const char* kExpected = "a time such as 60s, 500ms or 2m";
  static constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1e9},  {"ns", 1},   {"us", 1e3},  {"ms", 1e6},
                                                                   {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
  const auto [number, unit] = number_and_unit(text, kUnits, kExpected);
  const double value = number * unit;
  if (!std::isfinite(value) || value < 0 || value > 9e18) throw BadValue{kExpected};
  return nanoseconds(static_cast<std::int64_t>(value));
}

std::size_t size(std::string_view text) {
  static constexpr const char* kExpected = "a number of bytes such as 4096, 64k or 1m";
  static constexpr std::pair<std::string_view, std::size_t> kUnits[] = {
      {"", 1}, {"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}};
  const auto [number, unit] = number_and_unit(text, kUnits, kExpected);
  if (number > std::numeric_limits<std::size_t>::max() / unit) throw BadValue{kExpected};
  return number * unit;
}

int number_between(std::string_view text, int least, int most, const char* expected) {
  static constexpr std::pair<std::string_view, int> kNoUnit[] = {{"", 1}};
  const int value = number_and_unit(text, kNoUnit, expected).first;
  if (value < least || value > most) throw BadValue{expected};
  return value;
}

int number(std::string_view text) {
  return number_between(text, 0, std::numeric_limits<int>::max(), "a whole number, 0 or more");
}

int level_of(std::string_view text) { return number_between(text, 0, 4, "a whole number, 0 to 4"); }

int rails(std::string_view text) { return number_between(text, 1, 8, "a whole number, 1 to 8"); }

int core(std::string_view text) {
  const auto cores = static_cast<int>(sysconf(_SC_NPROCESSORS_CONF));
  return number_between(text, 0, cores - 1, "the number of a core of this machine");
}

std::string word(std::string_view text) { return std::string(text); }

/// The position of the text in `words`.
std::ptrdiff_t one_of(std::string_view text, std::initializer_list<std::string_view> words, const char* expected) {
  const auto* const found = std::ranges::find(words, text);
  if (found == words.end()) throw BadValue{expected};
  return found - words.begin();
}

bool staging(std::string_view text) { return one_of(text, {"auto", "always"}, "auto or always") == 1; }

bool nontemporal(std::string_view text) { return one_of(text, {"auto", "off"}, "auto or off") == 0; }

bool flag(std::string_view text) { return one_of(text, {"0", "1"}, "0 or 1") == 1; }

std::string profiler(std::string_view text) {
  one_of(text, {"auto", "nvtx", "roctx", "none"}, "auto, nvtx, roctx or none");
  return word(text);
}

/// One number is how many ranks a node has; of several, each is a node.
std::vector<int> topology(std::string_view text) {
  std::vector<int> numbers;
  for (const std::string_view one : words_of(text)) numbers.push_back(number(one));
  if (numbers.size() == 1 && numbers.front() == 0) throw BadValue{"at least 1 rank for each node"};
  return numbers;
}

LogLevel level(std::string_view text) {
  return LogLevel(one_of(text, {"error", "warn", "info", "trace"}, "error, warn, info or trace"));
}

template <auto Member, auto Read>
void set(Env& env, std::string_view text) {
  env.*Member = Read(text);
}

// Variables that other files read (device/drivers.cpp, base/process.cpp, include/sluice/kokkos/trace.hpp), once a
// process.
void check_waits(Env&, std::string_view text) { one_of(text, {"stream", "kernel"}, "stream or kernel"); }

void check_vendors(Env&, std::string_view text) {
  for (const std::string_view vendor : words_of(text))
    one_of(vendor, {"cuda", "hip", "none"}, "cuda, hip, both, or none");
}

void accept(Env&, std::string_view) {}

// A default is read as a value would be, so that what is listed is what is used.
constexpr Variable kTable[] = {
    {"SLUICE_TIMEOUT", "", "duration", set<&Env::timeout, duration>,
     "how long to wait for a live peer before failing; time in which the waiting process is stopped does not "
     "count; unset: no limit"},
    {"SLUICE_CONNECT_TIMEOUT", "60s", "duration", set<&Env::connect_timeout, duration>,
     "how long connecting, committing and closing may take"},
    {"SLUICE_WARN", "60s", "duration", set<&Env::warn, duration>,
     "a wait that lasts longer makes sluice-run print which rank waits for which, or is logged where there is no "
     "sluice-run; again each time that this passes; 0s: never"},
    {"SLUICE_PEER_TIMEOUT", "30s", "duration", set<&Env::peer_timeout, duration>,
     "a rank of another host that cannot be reached for this long is lost"},
    {"SLUICE_INTERFACE", "", "word", set<&Env::interface, word>,
     "the interface, by name or address, at which ranks of other hosts reach this host's, and which carries data "
     "unless SLUICE_NICS is set; unset: chosen"},
    {"SLUICE_BACKENDS", "", "list", set<&Env::backends, word>,
     "the backends that may be used, separated by commas; unset: all"},
    {"SLUICE_LOG", "warn", "level", set<&Env::log, level>, "what is written to stderr: error, warn, info or trace"},
    {"SLUICE_TRACE", "", "word", set<&Env::trace, word>,
     "a file that gets a timeline of all ranks, which Perfetto and Chrome show; unset: none"},
    {"SLUICE_CHECK", "0", "word", set<&Env::check, flag>,
     "1: mistakes in the use of channels, and of the memory of their slots, are errors that name both places; costs "
     "time in each call"},
    {"SLUICE_RANGES", "auto", "word", set<&Env::ranges, profiler>,
     "the profiler that is told of puts, waits and the like: nvtx, NVIDIA's; roctx, AMD's; none; or auto, the one "
     "that the program runs under"},
    {"SLUICE_BOUNCE_MAX", "512k", "size", set<&Env::bounce_max, size>,
     "how many bytes of a part may lie in a bounce buffer, when the target cannot be mapped and the kernel may copy; "
     "if "
     "this is less than 16k, the kernel copies all of a larger part"},
    {"SLUICE_NONTEMPORAL", "auto", "word", set<&Env::nontemporal, nontemporal>,
     "auto: long copies into a peer's memory bypass the cache where that is measured to be faster; off: "
     "they do not"},
    {"SLUICE_NONTEMPORAL_MIN", "16m", "size", set<&Env::nontemporal_min, size>,
     "the smallest copy that always bypasses the cache"},
    {"SLUICE_KERNEL_PUT_MAX", "16k", "size", set<&Env::kernel_put_max, size>,
     "the largest part that a put on a GPU's stream copies by a kernel, with its signal, and not by the copy "
     "engine; 0: none"},
    {"SLUICE_LEVEL", "4", "number", set<&Env::level, level_of>,
     "no more of a network is used than this support level offers, 0 to 4"},
    {"SLUICE_TRIGGER_ENTRIES", "", "number", set<&Env::trigger_entries, number>,
     "how many of a NIC's trigger entries each rank may take, at most; what finds none left is posted by the "
     "engine; unset: its share of what the NIC says that it has"},
    {"SLUICE_RAILS", "", "number", set<&Env::rails, rails>,
     "over how many rails a channel is striped, 1 to 8; unset: by the size of its slots"},
    {"SLUICE_TOPOLOGY", "", "list", set<&Env::topology, topology>,
     "the nodes that collectives take the ranks to be on: how many ranks each has, as 4, or a number for each rank of "
     "all, as 0,0,1,1,0; unset: the hosts"},
    {"SLUICE_MODEL", "", "word", set<&Env::model, word>,
     "a file of the costs of messages, as sluice-bench model writes it, by which collectives choose their algorithms; "
     "the same at all ranks; unset: built-in costs"},
    {"SLUICE_STAGING", "auto", "word", set<&Env::stage_all, staging>,
     "auto: memory that a network cannot reach is staged through memory that it can; always: all of the user's is"},
    {"SLUICE_NICS", "", "list", set<&Env::nics, word>,
     "the network devices that may be used, best first, separated by commas; unset: by locality"},
    {"SLUICE_GPUS", "", "list", check_vendors,
     "whose GPUs may be used: cuda, hip, or both separated by a comma, or none; unset: both"},
    {"SLUICE_GPU_WAITS", "stream", "word", check_waits,
     "who waits for words on GPUs' streams, and writes them: stream, its own operations; or kernel, kernels that "
     "poll and hold a multiprocessor meanwhile, for GPUs whose streams cannot"},
    {"SLUICE_ENGINE_CPU", "", "number", set<&Env::engine_cpu, core>,
     "the core that the engine's thread runs on; unset: any"},
    {"SLUICE_ENGINE_POLL", "0s", "duration", set<&Env::engine_poll, duration>,
     "how long the engine sleeps between two looks at work under way; 0s: it only yields"},
    {"SLUICE_MPI_RMA", "1", "word", accept,
     "0: libsluice_mpi_rma leaves all windows of a program of MPI's to MPI; else it serves those that it can"},
    {"SLUICE_MPI_YIELD", "1", "word", accept,
     "0: with libsluice_mpi_rma MPI waits as it does by itself; else MPICH over UCX gives its core away while it "
     "waits, "
     "in programs with windows whose ranks outnumber the cores"},
    {"SLUICE_RUN_IN", "", "word", accept, "set by run: tells the process in which it was called"},
    // Only sluice-run sets the rest.
    {"SLUICE_RANK", "", "number", set<&Env::rank, number>, "set by sluice-run: this process's rank", true},
    {"SLUICE_SIZE", "", "number", set<&Env::size, number>, "set by sluice-run: the number of ranks", true},
    {"SLUICE_THREADS", "", "number", set<&Env::threads, number>,
     "set by sluice-run --threads: how many ranks to run as threads of this process", true},
    {"SLUICE_JOB", "", "word", set<&Env::job, word>,
     "set by sluice-run: the name by which the ranks of a job find each other", true},
    {"SLUICE_LISTEN_FD", "", "number", set<&Env::listen_fd, number>,
     "set by sluice-run: the descriptor of the rank's listening socket", true},
    {"SLUICE_HOSTS_FD", "", "number", set<&Env::hosts_fd, number>,
     "set by sluice-run --hosts: the descriptor of the table of all ranks", true},
    {"SLUICE_TCP_FD", "", "number", set<&Env::tcp_fd, number>,
     "set by sluice-run --hosts: the descriptor of the rank's listening socket for other hosts", true},
    {"SLUICE_REPORT_FD", "", "number", set<&Env::report_fd, number>,
     "set by sluice-run: the descriptor of the page in which a process reports to it", true},
    {"SLUICE_LAUNCHER_FD", "", "number", set<&Env::launcher_fd, number>,
     "set by sluice-run: the descriptor of a pipe whose other end it holds", true},
};

const Variable* find(std::string_view name) {
  const auto* const found = std::ranges::find(kTable, name, &Variable::name);
  return found == std::end(kTable) ? nullptr : found;
}

bool left_to_users(std::string_view name) {
  return name == "SLUICE_ROOT" || name == "SLUICE_DIR" || name.starts_with("SLUICE_USER_");
}

// Variables that cmake/ and ./dev read (cmake/README.md).
bool is_of_our_build(std::string_view name) {
  constexpr std::string_view kNames[] = {"SLUICE_UNITY_BUILD", "SLUICE_LIBFABRIC_DIR",    "SLUICE_KOKKOS_KIND",
                                         "SLUICE_NVCC",        "SLUICE_CUDA_INCLUDE_DIR", "SLUICE_CUDA_ARCHITECTURES",
                                         "SLUICE_HIP_CLANG",   "SLUICE_HIP_INCLUDE_DIR",  "SLUICE_HIP_ARCHITECTURES"};
  return name.starts_with("SLUICE_ENABLE_") || name.starts_with("SLUICE_SOURCE_") ||
         std::ranges::count(kNames, name) > 0;
}

// Variables that Kubernetes sets for a service called sluice or sluice-NAME:
// https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
// The value must fit too, so that a typo in one of our names stays an error.
bool is_of_kubernetes(std::string_view name, std::string_view value) {
  const bool named =
      name.ends_with("_SERVICE_HOST") || name.ends_with("_PORT") || name.find("_PORT_") != std::string_view::npos;
  const std::string_view protocol = value.substr(0, value.find("://"));
  const bool is_number = !value.empty() && value.find_first_not_of("0123456789") == std::string_view::npos;
  const bool has_protocol = protocol == "tcp" || protocol == "udp" || protocol == "sctp";
  return named && (has_protocol || is_number || parse_address(std::string(value)).version != 0);
}

void read_value(Env& env, const Variable& variable, std::string_view value) {
  try {
    variable.read(env, value);
  } catch (const BadValue& bad) {
    throw std::invalid_argument("environment variable " + std::string(variable.name) + "=" + std::string(value) +
                                ": expected " + bad.expected);
  }
}

void read_entry(Env& env, std::string_view entry) {
  if (!entry.starts_with("SLUICE_")) return;
  const std::size_t equals = std::min(entry.find('='), entry.size());
  const std::string_view name = entry.substr(0, equals);
  if (left_to_users(name)) return;
  const std::string_view value = entry.substr(std::min(equals + 1, entry.size()));
  if (const Variable* const known = find(name)) return read_value(env, *known, value);
  if (!is_of_our_build(name) && !is_of_kubernetes(name, value)) {
    throw std::invalid_argument("unknown environment variable " + std::string(name) + " (sluice-info lists them all)");
  }
  env.passed_over.emplace_back(name);
}

}  // namespace

Env read_env() {
  Env env;
  for (const Variable& variable : kTable) {
    if (*variable.default_value != '\0') read_value(env, variable, variable.default_value);
  }
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) read_entry(env, *entry);
  return env;
}

std::span<const Variable> variables() { return kTable; }

bool launchers_own(std::string_view variable) noexcept {
  const Variable* const known = find(variable);
  return known != nullptr && known->launchers_own;
}

void forget_launcher() noexcept {
  for (const Variable& variable : kTable) {
    if (variable.launchers_own) ::unsetenv(variable.name);
  }
}

}  // namespace sluice::base
