// SPDX-License-Identifier: Apache-2.0
#include "base/env.hpp"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <system_error>

#include "base/text.hpp"

namespace sluice::base {

namespace {

using std::chrono::nanoseconds;

// What a bad value throws; the caller adds the variable's name and the value.
struct BadValue {
  const char* expected;
};

// Splits "250ms" into 250 and "ms".
template <class Number>
std::pair<Number, std::string_view> split_unit(std::string_view text, const char* expected) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) throw BadValue{expected};
  return {number, text.substr(static_cast<std::size_t>(end - text.data()))};
}

nanoseconds duration(std::string_view text) {
  static constexpr const char* kExpected = "a time such as 60s, 500ms or 2m";
  struct Unit {
    std::string_view name;
    double in_nanoseconds;
  };
  static constexpr std::array<Unit, 7> kUnits = {
      {{"", 1e9}, {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}}};
  const auto [number, name] = split_unit<double>(text, kExpected);
  const auto* const unit = std::ranges::find(kUnits, name, &Unit::name);
  if (unit == kUnits.end()) throw BadValue{kExpected};
  const double value = number * unit->in_nanoseconds;
  if (!std::isfinite(value) || value < 0 || value > 9e18) throw BadValue{kExpected};
  return nanoseconds(static_cast<std::int64_t>(value));
}

std::size_t size(std::string_view text) {
  static constexpr const char* kExpected = "a number of bytes such as 4096, 64k or 1m";
  struct Unit {
    std::string_view name;
    int shift;
  };
  static constexpr std::array<Unit, 4> kUnits = {{{"", 0}, {"k", 10}, {"m", 20}, {"g", 30}}};
  const auto [number, name] = split_unit<std::size_t>(text, kExpected);
  const auto* const unit = std::ranges::find(kUnits, name, &Unit::name);
  if (unit == kUnits.end() || number > std::numeric_limits<std::size_t>::max() >> unit->shift) {
    throw BadValue{kExpected};
  }
  return number << unit->shift;
}

int number(std::string_view text) {
  static constexpr const char* kExpected = "a whole number, 0 or more";
  const auto [value, rest] = split_unit<int>(text, kExpected);
  if (value < 0 || !rest.empty()) throw BadValue{kExpected};
  return value;
}

int level_of(std::string_view text) {
  const int value = number(text);
  constexpr int kBest = 4;
  if (value > kBest) throw BadValue{"a whole number, 0 to 4"};
  return value;
}

int rails(std::string_view text) {
  constexpr int kMost = 8;
  const int value = number(text);
  if (value < 1 || value > kMost) throw BadValue{"a whole number, 1 to 8"};
  return value;
}

int core(std::string_view text) {
  const int value = number(text);
  if (value >= sysconf(_SC_NPROCESSORS_CONF)) throw BadValue{"the number of a core of this machine"};
  return value;
}

bool staging(std::string_view text) {
  if (text != "auto" && text != "always") throw BadValue{"auto or always"};
  return text == "always";
}

std::string profiler(std::string_view text) {
  if (text != "auto" && text != "nvtx" && text != "roctx" && text != "none")
    throw BadValue{"auto, nvtx, roctx or none"};
  return std::string(text);
}

void check_waits(std::string_view text) {
  if (text != "stream" && text != "kernel") throw BadValue{"stream or kernel"};
}

void check_vendors(std::string_view text) {
  for (const std::string_view word : words_of(text)) {
    if (word != "cuda" && word != "hip" && word != "none") throw BadValue{"cuda, hip, both, or none"};
  }
}

LogLevel level(std::string_view text) {
  static constexpr std::array<std::string_view, 4> kNames = {"error", "warn", "info", "trace"};
  const auto* const found = std::ranges::find(kNames, text);
  if (found == kNames.end()) throw BadValue{"error, warn, info or trace"};
  return static_cast<LogLevel>(found - kNames.begin());
}

struct Row {
  Variable variable;
  void (*read)(Env&, std::string_view);
  bool launchers_own = false;
};

using Kind = VariableKind;

// A default is read as a value would be, so that what is listed is what is used.
constexpr std::array kTable = {
    Row{{"SLUICE_TIMEOUT", "",
         "how long to wait for a live peer before failing; time in which the waiting process is stopped does not "
         "count; unset: no limit",
         Kind::duration},
        [](Env& env, std::string_view text) { env.timeout = duration(text); }},
    Row{{"SLUICE_CONNECT_TIMEOUT", "60s", "how long opening, committing and closing may take", Kind::duration},
        [](Env& env, std::string_view text) { env.connect_timeout = duration(text); }},
    Row{{"SLUICE_WARN", "60s", "a wait that lasts longer is logged, and again each time that this passes",
         Kind::duration},
        [](Env& env, std::string_view text) { env.warn = duration(text); }},
    Row{{"SLUICE_PEER_TIMEOUT", "30s", "a rank of another host that cannot be reached for this long is lost",
         Kind::duration},
        [](Env& env, std::string_view text) { env.peer_timeout = duration(text); }},
    Row{{"SLUICE_INTERFACE", "",
         "the interface, by name or address, at which ranks of other hosts reach this host's, and which carries data "
         "unless SLUICE_NICS is set; unset: chosen",
         Kind::word},
        [](Env& env, std::string_view text) { env.interface = text; }},
    Row{{"SLUICE_BACKENDS", "", "the backends that may be used, separated by commas; unset: all", Kind::list},
        [](Env& env, std::string_view text) { env.backends = text; }},
    Row{{"SLUICE_LOG", "warn", "what is written to stderr: error, warn, info or trace", Kind::level},
        [](Env& env, std::string_view text) { env.log = level(text); }},
    Row{{"SLUICE_TRACE", "", "a file that gets a timeline of all ranks, which Perfetto and Chrome show; unset: none",
         Kind::word},
        [](Env& env, std::string_view text) { env.trace = text; }},
    Row{{"SLUICE_RANGES", "auto",
         "the profiler that is told of puts, waits and the like: nvtx, NVIDIA's; roctx, AMD's; none; or auto, the one "
         "that the program runs under",
         Kind::word},
        [](Env& env, std::string_view text) { env.ranges = profiler(text); }},
    Row{{"SLUICE_BOUNCE_MAX", "2k",
         "the largest part that goes through a bounce buffer when the target cannot be mapped", Kind::size},
        [](Env& env, std::string_view text) { env.bounce_max = size(text); }},
    Row{{"SLUICE_NONTEMPORAL_MIN", "8m", "the smallest copy that bypasses the cache", Kind::size},
        [](Env& env, std::string_view text) { env.nontemporal_min = size(text); }},
    Row{{"SLUICE_KERNEL_PUT_MAX", "16k",
         "the largest part that a put on a GPU's stream copies by a kernel, with its signal, and not by the copy "
         "engine; 0: none",
         Kind::size},
        [](Env& env, std::string_view text) { env.kernel_put_max = size(text); }},
    Row{{"SLUICE_LEVEL", "4", "no more of a network is used than this support level offers, 0 to 4", Kind::number},
        [](Env& env, std::string_view text) { env.level = level_of(text); }},
    Row{{"SLUICE_TRIGGER_ENTRIES", "",
         "how many of a NIC's trigger entries each rank may take, at most; what finds none left is posted by the "
         "engine; unset: its share of what the NIC says that it has",
         Kind::number},
        [](Env& env, std::string_view text) { env.trigger_entries = number(text); }},
    Row{{"SLUICE_RAILS", "", "over how many rails a channel is striped, 1 to 8; unset: by the size of its slots",
         Kind::number},
        [](Env& env, std::string_view text) { env.rails = rails(text); }},
    Row{{"SLUICE_STAGING", "auto",
         "auto: memory that a network cannot reach is staged through memory that it can; always: all of the user's is",
         Kind::word},
        [](Env& env, std::string_view text) { env.stage_all = staging(text); }},
    Row{{"SLUICE_NICS", "", "the network devices that may be used, best first, separated by commas; unset: by locality",
         Kind::list},
        [](Env& env, std::string_view text) { env.nics = text; }},
    Row{{"SLUICE_GPUS", "", "whose GPUs may be used: cuda, hip, or both separated by a comma, or none; unset: both",
         Kind::list},
        [](Env&, std::string_view text) { check_vendors(text); }},  // device/drivers.cpp reads it, once a process
    Row{{"SLUICE_GPU_WAITS", "stream",
         "who waits for words on GPUs' streams, and writes them: stream, its own operations; or kernel, kernels that "
         "poll and hold a multiprocessor meanwhile, for GPUs whose streams cannot",
         Kind::word},
        [](Env&, std::string_view text) { check_waits(text); }},  // as SLUICE_GPUS
    Row{{"SLUICE_ENGINE_CPU", "", "the core that the engine's thread runs on; unset: any", Kind::number},
        [](Env& env, std::string_view text) { env.engine_cpu = core(text); }},
    Row{{"SLUICE_ENGINE_POLL", "0s",
         "how long the engine sleeps between two looks at work under way; 0s: it only yields", Kind::duration},
        [](Env& env, std::string_view text) { env.engine_poll = duration(text); }},
    Row{{"SLUICE_RUN_IN", "", "set by run: tells the process in which it was called", Kind::word},
        [](Env&, std::string_view) {}},  // base/process.cpp reads it
    Row{{"SLUICE_RANK", "", "set by sluice-run: this process's rank", Kind::number},
        [](Env& env, std::string_view text) { env.rank = number(text); },
        true},
    Row{{"SLUICE_SIZE", "", "set by sluice-run: the number of ranks", Kind::number},
        [](Env& env, std::string_view text) { env.size = number(text); },
        true},
    Row{{"SLUICE_THREADS", "", "set by sluice-run --threads: how many ranks to run as threads of this process",
         Kind::number},
        [](Env& env, std::string_view text) { env.threads = number(text); },
        true},
    Row{{"SLUICE_JOB", "", "set by sluice-run: the name by which the ranks of a job find each other", Kind::word},
        [](Env& env, std::string_view text) { env.job = text; },
        true},
    Row{{"SLUICE_LISTEN_FD", "", "set by sluice-run: the descriptor of the rank's listening socket", Kind::number},
        [](Env& env, std::string_view text) { env.listen_fd = number(text); },
        true},
    Row{{"SLUICE_HOSTS_FD", "", "set by sluice-run --hosts: the descriptor of the table of all ranks", Kind::number},
        [](Env& env, std::string_view text) { env.hosts_fd = number(text); },
        true},
    Row{{"SLUICE_TCP_FD", "",
         "set by sluice-run --hosts: the descriptor of the rank's listening socket for other hosts", Kind::number},
        [](Env& env, std::string_view text) { env.tcp_fd = number(text); },
        true},
    Row{{"SLUICE_REPORT_FD", "", "set by sluice-run: the descriptor of the page in which a process reports to it",
         Kind::number},
        [](Env& env, std::string_view text) { env.report_fd = number(text); },
        true},
    Row{{"SLUICE_LAUNCHER_FD", "", "set by sluice-run: the descriptor of a pipe whose other end it holds",
         Kind::number},
        [](Env& env, std::string_view text) { env.launcher_fd = number(text); },
        true},
};

constexpr auto kVariables = [] {
  std::array<Variable, kTable.size()> variables{};
  std::ranges::transform(kTable, variables.begin(), &Row::variable);
  return variables;
}();

const Row* find(std::string_view name) {
  const auto* const row =
      std::ranges::find(kTable, name, [](const Row& r) { return std::string_view(r.variable.name); });
  return row == kTable.end() ? nullptr : row;
}

bool left_to_users(std::string_view name) {
  return name == "SLUICE_ROOT" || name == "SLUICE_DIR" || name.starts_with("SLUICE_USER_");
}

// Variables that cmake/ and ./dev read (cmake/README.md).
bool is_of_our_build(std::string_view name) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "SLUICE_UNITY_BUILD", "SLUICE_LIBFABRIC_DIR",    "SLUICE_KOKKOS_KIND",
      "SLUICE_NVCC",        "SLUICE_CUDA_INCLUDE_DIR", "SLUICE_CUDA_ARCHITECTURES",
      "SLUICE_HIP_CLANG",   "SLUICE_HIP_INCLUDE_DIR",  "SLUICE_HIP_ARCHITECTURES"};
  return name.starts_with("SLUICE_ENABLE_") || name.starts_with("SLUICE_SOURCE_") ||
         std::ranges::find(kNames, name) != kNames.end();
}

bool is_address(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> bytes;
  return ::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

// Variables that Kubernetes sets for a service called sluice or sluice-NAME:
// https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
// The value is looked at too, so that a typo in a name of ours stays an error.
bool is_of_kubernetes(std::string_view name, std::string_view value) {
  static constexpr std::array<std::string_view, 3> kProtocols = {"tcp", "udp", "sctp"};
  const bool named =
      name.ends_with("_SERVICE_HOST") || name.ends_with("_PORT") || name.find("_PORT_") != std::string_view::npos;
  const std::string_view protocol = value.substr(0, value.find("://"));
  const bool is_number = !value.empty() && value.find_first_not_of("0123456789") == std::string_view::npos;
  return named &&
         (std::ranges::find(kProtocols, protocol) != kProtocols.end() || is_number || is_address(std::string(value)));
}

void read_value(Env& env, const Row& row, std::string_view value) {
  try {
    row.read(env, value);
  } catch (const BadValue& bad) {
    throw std::invalid_argument("environment variable " + std::string(row.variable.name) + "=" + std::string(value) +
                                ": expected " + bad.expected);
  }
}

void read_entry(Env& env, std::string_view entry) {
  if (!entry.starts_with("SLUICE_")) return;
  const std::size_t equals = std::min(entry.find('='), entry.size());
  const std::string_view name = entry.substr(0, equals);
  if (left_to_users(name)) return;
  const std::string_view value = entry.substr(std::min(equals + 1, entry.size()));
  if (const Row* const row = find(name)) return read_value(env, *row, value);
  if (!is_of_our_build(name) && !is_of_kubernetes(name, value)) {
    throw std::invalid_argument("unknown environment variable " + std::string(name) + " (sluice-info lists them all)");
  }
  env.passed_over.emplace_back(name);
}

}  // namespace

const char* name(VariableKind kind) noexcept {
  switch (kind) {
    case Kind::duration: return "duration";
    case Kind::size: return "size";
    case Kind::number: return "number";
    case Kind::list: return "list";
    case Kind::word: return "word";
    case Kind::level: return "level";
  }
  return "?";
}

Env read_env() {
  Env env;
  for (const Row& row : kTable) {
    if (*row.variable.default_value != '\0') read_value(env, row, row.variable.default_value);
  }
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) read_entry(env, *entry);
  return env;
}

std::span<const Variable> variables() { return kVariables; }

bool launchers_own(std::string_view variable) noexcept {
  const Row* const row = find(variable);
  return row != nullptr && row->launchers_own;
}

void forget_launcher() noexcept {
  for (const Row& row : kTable) {
    if (row.launchers_own) ::unsetenv(row.variable.name);
  }
}

}  // namespace sluice::base
