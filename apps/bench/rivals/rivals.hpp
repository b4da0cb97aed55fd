// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <memory>
#include <string>
#include <vector>

namespace bench {

/// Makes a contender. nullptr, on all ranks: it turned out that it cannot run, which a line reports.
using Maker = std::unique_ptr<Contender> (*)(const Workload& workload);

/// A rival of Sluice, and its contender in each bench; nullptr: it has nothing comparable.
struct Rival {
  const char* name;
  const char* what;
  std::string (*why_not)(const Options& options);  ///< why it cannot run with this command line; empty: it can
  std::string (*library)(const Options& options);  ///< its library, for people; empty: none
  bool (*expected)(const Options& options);        ///< made for this setting: if it cannot run, a line says why
  Maker latency = nullptr;
  Maker bandwidth = nullptr;
  Maker rate = nullptr;
  Maker stream = nullptr;
  Maker enqueue = nullptr;
  Maker halo = nullptr;
  Maker replay = nullptr;
  Maker replay_halo = nullptr;
  Maker device = nullptr;
  Maker overlap = nullptr;
  Maker scale = nullptr;
  Maker packing = nullptr;
  Maker packing_faces = nullptr;
};

using RivalColumn = Maker Rival::*;

/// The rival's method, and its library.
std::string what(const Rival& rival, const Options& options);

/// @throws apps::UsageError for an unknown name, and for a rival that cannot run here or has nothing comparable.
void check_rivals(const Options& options, RivalColumn column);

/// True for the floor: no contender can be faster, and its drift shows how quiet the machine was.
bool is_floor(const std::string& name);

/// The rivals that --against names and that have a contender in `column`, in the order of the table. One row of a bench
/// may lack a rival that another row has.
std::vector<const Rival*> rivals_for(const Options& options, RivalColumn column);

/// Lines that name the rivals on the network of --backend, or on GPUs, that belong here but cannot run.
std::vector<std::string> left_out(const Options& options, RivalColumn column);

}  // namespace bench
