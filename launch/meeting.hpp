// SPDX-License-Identifier: Apache-2.0
// How the launchers of a job that spans hosts meet: host 0 listens, the others come, and all learn where every rank is.
#pragma once

#include <string>
#include <vector>

#include <sluice/types.hpp>

#include "base/env.hpp"
#include "launch/launch_flags.hpp"
#include "peers/message.hpp"
#include "peers/wire.hpp"

namespace sluice::runtime {

/// What launchers say to each other.
enum class Note : std::uint8_t {
  hello,      ///< who comes, and where its ranks listen
  agreement,  ///< from host 0: the job, and where every rank is
  refusal,    ///< why there will be no job
  ready,      ///< the ranks of this host can be found
  go,         ///< from host 0: so can all ranks
  failure,    ///< a rank or host has failed: code, whether as a consequence, and who
  finished,   ///< no rank of this host is left
  over        ///< from host 0: no rank is left anywhere; the exit code
};

/// Another host's launcher.
struct Partner {
  int host = 0;
  Wire wire;
  bool finished = false;
};

/// What the launchers have agreed on.
struct Agreement {
  Rank first = 0;  ///< of the ranks of this host
  int size = 0;
  std::string job;
  base::Fd roster;
  std::vector<base::Fd> listeners;      ///< one for each rank of this host
  std::vector<base::Fd> tcp_listeners;  ///< likewise
  std::vector<Partner> partners;        ///< at host 0 all others, else host 0
};

/// Returns when the ranks of all hosts can be found, or fails on all hosts alike, with one line that says why.
/// @throws std::runtime_error
Agreement meet(const Request& request, const base::Env& env);

}  // namespace sluice::runtime
