// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <memory>
#include <string>
#include <vector>

namespace bench {

/// Makes a contender. Returns nullptr, on all ranks, if it turns out that the rival cannot run; a line of the output
/// says so.
using Maker = std::unique_ptr<Contender> (*)(const Workload& workload);

/// A rival of Sluice: a row of the table in rivals.cpp. The makers of its contenders are its columns; nullptr: the
/// rival has nothing comparable.
struct Rival {
  const char* name;
  const char* what;                                ///< its method, for people
  std::string (*why_not)(const Options& options);  ///< why it cannot run with this command line; empty: it can
  std::string (*library)(const Options& options);  ///< its library, for people; empty: none, or not worth naming
  bool (*expected)(const Options& options);        ///< true: if it cannot run here, the output says why
  Maker latency = nullptr;
  Maker bandwidth = nullptr;
  Maker rate = nullptr;
  Maker stream = nullptr;
  Maker enqueue = nullptr;
  Maker pipeline = nullptr;
  Maker halo = nullptr;
  Maker replay = nullptr;
  Maker replay_halo = nullptr;
  Maker device = nullptr;
  Maker overlap = nullptr;
  Maker scale = nullptr;
  Maker rma = nullptr;
  Maker collectives = nullptr;
  Maker hash_table = nullptr;
  Maker sparse_exchange = nullptr;
  Maker packing = nullptr;
  Maker packing_faces = nullptr;
};

using RivalColumn = Maker Rival::*;

/// The rival's method, and its library.
std::string what(const Rival& rival, const Options& options);

/// @throws apps::UsageError for an unknown name, and for a rival that cannot run here or has nothing comparable.
void check_rivals(const Options& options, RivalColumn column);

/// True for the floors, which do the least work that is possible: their drift shows whether other programs disturbed
/// the run.
bool is_floor(const std::string& name);

/// The rivals that --against names, that can run, and that have a contender in `column`, in the order of the table.
std::vector<const Rival*> rivals_for(const Options& options, RivalColumn column);

/// A line for each rival that belongs to this network or to GPUs, but cannot run: its name and the reason.
std::vector<std::string> left_out(const Options& options, RivalColumn column);

}  // namespace bench
