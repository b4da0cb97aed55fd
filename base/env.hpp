// SPDX-License-Identifier: Apache-2.0
// Every environment variable of Sluice, in one table (env.cpp).
#pragma once

#include "base/log.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::base {

struct Env;

/// One row of the table.
struct Variable {
  const char* name;
  const char* default_value;  ///< as it would be set; empty: none
  /// Form of a value: "duration" ("60s", "500ms", "2m"; a plain number is in seconds), "size" ("64k", "1m"; a plain
  /// number is in bytes), "number", "list" (words separated by commas), "word", or "level" (error, warn, info or
  /// trace).
  const char* kind;
  void (*read)(Env&, std::string_view);  ///< throws for a bad value
  const char* meaning;
  bool launchers_own = false;  ///< set by sluice-run alone, for the processes that it starts
};

/// Values of the environment, or the defaults of variables that are not set.
struct Env {
  std::optional<std::chrono::nanoseconds> timeout;  ///< SLUICE_TIMEOUT; none: no limit
  std::chrono::nanoseconds connect_timeout{};       ///< SLUICE_CONNECT_TIMEOUT
  std::chrono::nanoseconds warn{};                  ///< SLUICE_WARN
  std::chrono::nanoseconds peer_timeout{};          ///< SLUICE_PEER_TIMEOUT
  std::string interface;                            ///< SLUICE_INTERFACE; empty: chosen
  std::string backends;                             ///< SLUICE_BACKENDS; empty: all
  LogLevel log = LogLevel::warn;                    ///< SLUICE_LOG
  std::string trace;                                ///< SLUICE_TRACE; empty: none
  bool check = false;                               ///< SLUICE_CHECK
  std::string ranges;                               ///< SLUICE_RANGES: auto, nvtx, roctx or none
  std::size_t bounce_max = 0;                       ///< SLUICE_BOUNCE_MAX
  bool nontemporal = true;                          ///< SLUICE_NONTEMPORAL
  std::size_t nontemporal_min = 0;                  ///< SLUICE_NONTEMPORAL_MIN
  std::size_t kernel_put_max = 0;                   ///< SLUICE_KERNEL_PUT_MAX
  int level = 4;                                    ///< SLUICE_LEVEL
  std::optional<int> trigger_entries;               ///< SLUICE_TRIGGER_ENTRIES; none: as many as the NIC reports
  int rails = 0;                                    ///< SLUICE_RAILS; 0: by size
  std::vector<int> topology;                        ///< SLUICE_TOPOLOGY; empty: as it is
  std::string model;                                ///< SLUICE_MODEL; empty: built in
  bool stage_all = false;                           ///< SLUICE_STAGING
  std::string nics;                                 ///< SLUICE_NICS; empty: by locality
  int engine_cpu = -1;                              ///< SLUICE_ENGINE_CPU; -1: any
  std::chrono::nanoseconds engine_poll{};           ///< SLUICE_ENGINE_POLL

  // Set by sluice-run for the processes that it starts.
  int rank = -1;         ///< SLUICE_RANK; -1: not a rank of sluice-run
  int size = 0;          ///< SLUICE_SIZE
  int threads = 0;       ///< SLUICE_THREADS: run this many ranks as threads
  std::string job;       ///< SLUICE_JOB
  int listen_fd = -1;    ///< SLUICE_LISTEN_FD: the rank's own listening socket
  int hosts_fd = -1;     ///< SLUICE_HOSTS_FD: the table of all ranks; -1: all on this host
  int tcp_fd = -1;       ///< SLUICE_TCP_FD: the rank's listening socket for the ranks of other hosts
  int report_fd = -1;    ///< SLUICE_REPORT_FD: the page in which the process reports
  int launcher_fd = -1;  ///< SLUICE_LAUNCHER_FD: the pipe whose other end sluice-run holds

  std::vector<std::string> passed_over;  ///< names that only our build or Kubernetes uses
};

/// Reads the environment.
/// @throws std::invalid_argument naming a SLUICE_ variable that is unknown or has a bad value. SLUICE_ROOT, SLUICE_DIR
/// and SLUICE_USER_* are left to users and modules. Variables of our build are ignored, as are those that Kubernetes
/// sets in every container near a service whose name begins with "sluice".
Env read_env();

/// Returns the whole table, in the order in which sluice-info lists it.
std::span<const Variable> variables();

/// True for variables that only sluice-run sets, for the processes that it starts.
bool launchers_own(std::string_view variable) noexcept;

/// Removes the launcher's own variables from the environment, so that a program that a rank starts does not take itself
/// for that rank. No other thread may use the environment at the same time.
void forget_launcher() noexcept;

}  // namespace sluice::base
