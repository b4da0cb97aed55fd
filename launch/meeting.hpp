// SPDX-License-Identifier: Apache-2.0
// How the launchers (sluice-run) of a job that spans hosts meet: host 0 listens, the others connect, and all get the
// addresses of all ranks.
#pragma once

#include <string>
#include <vector>

#include <sluice/types.hpp>

#include "base/env.hpp"
#include "launch/launch_flags.hpp"
#include "peers/message.hpp"
#include "peers/wire.hpp"

namespace sluice::runtime {

/// Messages between launchers.
enum class Note : std::uint8_t {
  hello,      ///< the host, and where its ranks listen
  agreement,  ///< from host 0: the job, and the addresses of all ranks
  refusal,    ///< why there will be no job
  ready,      ///< the ranks of this host can be connected to
  go,         ///< from host 0: the ranks of all hosts can be connected to
  failure,    ///< a rank or host has failed: its name, the exit code, and whether as a consequence
  finished,   ///< no rank of this host is left
  ended       ///< from host 0: no rank is left on any host; the exit code
};

/// Another host's launcher.
struct Partner {
  int host = 0;
  Wire wire;
  bool finished = false;
};

/// A job, as its launchers have agreed on it.
struct Agreement {
  Rank first = 0;  ///< the lowest rank of this host
  int size = 0;
  std::string job;
  base::Fd roster;
  std::vector<base::Fd> listeners;      ///< one for each rank of this host
  std::vector<base::Fd> tcp_listeners;  ///< one for each rank of this host; none if this is the only host
  std::vector<Partner> partners;        ///< at host 0 all others, else host 0
};

/// Returns when the ranks of all hosts can be connected to. Throws on all hosts if one cannot take part, with one line
/// that says why. @throws std::runtime_error
Agreement meet(const Request& request, const base::Env& env);

}  // namespace sluice::runtime
