// SPDX-License-Identifier: Apache-2.0
// What `sluice::run` and the ways of starting share.
#pragma once

#include "base/env.hpp"
#include "runtime/report.hpp"

#include <sluice/run.hpp>

#include <functional>
#include <string_view>

namespace sluice::runtime {

/// What `run` was called with, and what the environment said.
struct Start {
  int argc;
  char** argv;
  const Body& body;
  const Options& options;
  const base::Env& env;
};

/// How the body of one rank ended.
enum class Outcome {
  done,
  failed,
  lost_peer  ///< with Code::peer_lost: most likely the consequence of another rank's failure
};

constexpr int exit_code(Outcome outcome) noexcept { return outcome == Outcome::done ? 0 : 1; }

/// A way of starting that another library brings.
using Starter = Outcome (*)(const Start&);

/// From now on `run` uses it under an MPI launcher. For static objects; not thread-safe.
[[gnu::visibility("default")]] void register_starter(Starter starter) noexcept;

/// Opens the rank's context, runs the body on it and ends it. What either throws is one line on stderr.
[[gnu::visibility("default")]] Outcome run_rank(Rank rank, const std::function<Context()>& open, const Body& body,
                                                InsideRun inside = {});

/// The exit code of `work`, or of what it threw, which is one line on stderr after `name`, or of a timeline that could
/// not be written.
int guarded(const char* name, const std::function<int()>& work);

/// Reads the environment, and checks that the backends it names exist. @throws std::invalid_argument
base::Env checked_env();

/// Reads the environment, checks it and the options, and makes the level of the log the environment's.
/// @throws std::invalid_argument
[[gnu::visibility("default")]] base::Env settings(const Options& options);

}  // namespace sluice::runtime
