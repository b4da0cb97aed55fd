// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/context.hpp>
#include <sluice/export.hpp>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

/// Settings of a context. An option that is not set has the value of its environment variable; without that, the
/// default.
struct Options {
  /// The limit of a wait for a live peer: SLUICE_TIMEOUT; default kForever.
  std::optional<Timeout> timeout;
  /// The limit of connecting, committing and closing: SLUICE_CONNECT_TIMEOUT; default 60 s.
  std::optional<Timeout> connect_timeout;
  /// Names of the allowed backends, separated by commas: SLUICE_BACKENDS; default all.
  std::string_view backends = {};
};

/// The program of one rank. The rank ends when it returns or throws. A channel that is still open then fails at the
/// peer with Code::peer_lost.
using Body = std::function<void(Context&)>;

/// Runs `body` once for each rank of this process, and returns when these have ended. Under `sluice-run` the process is
/// one rank, or has all ranks as threads. Under an MPI launcher it is one rank, and must be linked with `Sluice::mpi`.
/// Started by itself it is the only rank. `run` may be called once in each process, even if several plug-ins contain a
/// copy of the library, and not in a child of fork (`run_threads` may).
///
/// A rank may call `exit` in the body. `exit(0)` is a failure if the rank has channels open or if other ranks of its
/// process still run: one line on stderr names the rank, and the exit code is 1.
/// @returns the exit code. 0: success. 1: a body threw, a failure was thrown by no call, a context could not be made,
///   or the timeline not be written. A HostStream that outlives the call writes its line, and changes the code no more;
///   nor does a failure that no call has thrown when a rank calls `exit`.
///   2: a bad setting, or a second call. For 1 and 2, a line on stderr has the reason. `run` throws no std::exception.
SLUICE_EXPORT int run(int argc, char** argv, const Body& body, const Options& options = {});

/// Runs `body` in `ranks` threads, 1 or more, each of which is a rank; the calling thread is rank 0. Returns the exit
/// code when all have ended, as `run` does. It may be called any number of times, also inside a body, and in a child of
/// fork.
SLUICE_EXPORT int run_threads(int ranks, const Body& body, const Options& options = {});

/// The program `sluice-run`: `sluice-run -n N [--threads | --hosts H --host I --meet HOST:PORT] [--keep-going]
/// [--trace FILE] PROGRAM ARGS`. Returns its exit code when all ranks have ended.
SLUICE_EXPORT int launch(int argc, char** argv);

/// Checks the SLUICE_ variables of the environment as `run` does.
/// @throws std::invalid_argument, which names a variable that is unknown or has a bad value.
SLUICE_EXPORT void check_environment();

/// The text that `sluice-info` prints: version, backends, GPUs, providers, variables. As JSON if `json`.
SLUICE_EXPORT std::string info(bool json);

}  // namespace sluice
