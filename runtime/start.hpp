// SPDX-License-Identifier: Apache-2.0
// What `sluice::run` and the ways of starting share.
#pragma once

#include "base/env.hpp"
#include "base/fd.hpp"
#include "base/fork.hpp"

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

/// What a rank writes to SLUICE_REPORT_FD, for sluice-run.
inline constexpr char kRunCalled = 'r';
inline constexpr char kLostPeer = 'l';

/// A rank's messages to sluice-run: `run` was called; another rank's failure ended it.
class LaunchReport {
 public:
  /// @param fd  SLUICE_REPORT_FD; -1: there is no sluice-run @throws std::invalid_argument if it is no pipe
  explicit LaunchReport(int fd);
  /// The exit code.
  int ended(Outcome outcome) const;

 private:
  void say(char what) const;

  base::Fd pipe_;
  base::Origin origin_;
};

/// A way of starting that another library brings.
using Starter = Outcome (*)(const Start&);

/// From now on `run` uses it under an MPI launcher. For static objects; not thread-safe.
[[gnu::visibility("default")]] void register_starter(Starter starter) noexcept;

/// Opens the rank's context, runs the body on it and ends it. What either throws is one line on stderr.
[[gnu::visibility("default")]] Outcome run_rank(Rank rank, const std::function<Context()>& open, const Body& body);

/// Reads the environment, and checks that the backends it names exist. @throws std::invalid_argument
base::Env checked_env();

/// Reads the environment, checks it and the options, and makes the level of the log the environment's.
/// @throws std::invalid_argument
[[gnu::visibility("default")]] base::Env settings(const Options& options);

}  // namespace sluice::runtime
