// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <memory>
#include <string>
#include <vector>

namespace bench {

/// nullptr, on all ranks: it turned out that it cannot, which a line says.
using Maker = std::unique_ptr<Contender> (*)(const Case& one_case);

/// What Sluice is compared with, and how it does what each bench measures; nullptr: it has nothing comparable.
struct Rival {
  const char* name;
  const char* what;
  std::string (*why_not)(const Options& options);  ///< it cannot run with this command line; empty: it can
  std::string (*library)(const Options& options);  ///< that it runs on, for people; empty: none, or no matter
  bool (*at_home)(const Options& options);         ///< what it is made for: if it cannot run, a line says why
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

/// What it does, and on which library.
std::string what(const Rival& rival, const Options& options);

/// @throws apps::UsageError for an unknown name, and for a rival that cannot run here or has nothing comparable.
void check_rivals(const Options& options, RivalColumn column);

/// The one below which nothing is, and whose drift says how quiet the machine was.
bool is_floor(const std::string& name);

/// The rivals that the command line asks for and that do what `column` says, in the order of the table. One side of a
/// bench may lack a rival that another has.
std::vector<const Rival*> rivals_for(const Options& options, RivalColumn column);

/// Lines that say which rivals on the network that --backend names, or on GPUs, would belong here, but cannot run.
std::vector<std::string> left_out(const Options& options, RivalColumn column);

}  // namespace bench
