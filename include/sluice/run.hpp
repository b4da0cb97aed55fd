// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/context.hpp>
#include <sluice/export.hpp>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

/// Unset: the environment's, else the default.
struct Options {
  std::optional<Timeout> timeout;          ///< of waits for a live peer (SLUICE_TIMEOUT; none)
  std::optional<Timeout> connect_timeout;  ///< of opening, committing, closing (SLUICE_CONNECT_TIMEOUT; 60 s)
  std::string_view backends = {};          ///< allowed backends, separated by commas (SLUICE_BACKENDS; all)
};

/// What a rank does. What it throws ends the rank, which its peers then notice as lost.
using Body = std::function<void(Context&)>;

/// Calls `body` once per rank: processes or threads of `sluice-run`, MPI if `Sluice::mpi` is linked, else one rank.
/// Once a process, also where several plug-ins are linked with a static library and so have a copy of it each.
/// A rank may call `exit` in the body. With code 0, while it has channels open or other ranks of its process go on,
/// that is a failure: one line on stderr names the rank, and the code is 1.
/// @returns the exit code: 0, 1 if the body threw (one line on stderr says what), 2 for a bad setting.
SLUICE_EXPORT int run(int argc, char** argv, const Body& body, const Options& options = {});

/// Calls `body` in `ranks` threads of this process, each a rank. Returns when all have ended, with the exit code. So a
/// child that a rank has forked makes ranks of its own.
SLUICE_EXPORT int run_threads(int ranks, const Body& body, const Options& options = {});

/// What `sluice-run` does: `sluice-run -n N [--threads | --hosts H --host I --meet HOST:PORT] [--keep-going]
/// [--trace FILE] PROGRAM ARGS`. Returns the exit code.
SLUICE_EXPORT int launch(int argc, char** argv);

/// Checks the SLUICE_ variables as `run` does.
/// @throws std::invalid_argument naming one that is unknown or has a bad value
SLUICE_EXPORT void check_environment();

/// What `sluice-info` prints: version, backends, providers, variables.
SLUICE_EXPORT std::string info(bool json);

}  // namespace sluice
