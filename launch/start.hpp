// SPDX-License-Identifier: Apache-2.0
// Interface between `sluice::run` and the ways of starting.
#pragma once

#include "base/env.hpp"
#include "runtime/report.hpp"

#include <sluice/run.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace sluice::runtime {

/// The arguments of `run`, and the environment.
struct Start {
  int argc;
  char** argv;
  const Body& body;
  const Options& options;
  const base::Env& env;
};

/// How long the other ranks may take to notice that one has failed, and to end.
inline constexpr std::chrono::seconds kGrace{5};

/// How the body of one rank ended. `lost_peer` is a failure with Code::peer_lost: most likely the consequence of
/// another rank's failure.
enum class Outcome : std::uint8_t { done, failed, lost_peer };

constexpr int exit_code(Outcome outcome) noexcept { return outcome == Outcome::done ? 0 : 1; }

/// A launcher that started this process.
struct OtherLauncher {
  std::string said;  ///< the variable that decides, and its value: FLUX_JOB_SIZE=4
  int ranks = 1;     ///< the launcher has started so many ranks, or more
  bool told = true;  ///< `ranks` is exact
};

/// The launcher that started this process. Nothing if no known launcher did, or in a shell that one has opened.
std::optional<OtherLauncher> other_launcher();

/// Warns that the launcher did not tell how many ranks it has started, and that this process is a job of one rank.
[[gnu::visibility("default")]] void warn_of_one_rank(const OtherLauncher& launcher);

/// A way of starting that another library brings.
using Starter = Outcome (*)(const Start&, const OtherLauncher&);

/// Makes `run` use the starter under an MPI launcher. For static objects; not thread-safe.
[[gnu::visibility("default")]] void register_starter(Starter starter) noexcept;

/// Opens the rank's context, runs the body on it and ends it. Writes one line to stderr for an exception of either.
[[gnu::visibility("default")]] Outcome run_rank(Rank rank, const std::function<Context()>& open, const Body& body,
                                                InsideRun inside = {});

/// Runs `work` and returns its exit code, or 1 if the timeline could not be written. Writes one line to stderr, after
/// `name`, for an exception: 2 for std::invalid_argument, else 1.
int guarded(const std::string& name, const std::function<int()>& work);

/// Reads the environment, and checks that the backends it names exist. @throws std::invalid_argument
base::Env checked_env();

/// Reads the environment, checks it and the options, and sets the log level.
/// @throws std::invalid_argument
[[gnu::visibility("default")]] base::Env settings(const Options& options);

}  // namespace sluice::runtime
