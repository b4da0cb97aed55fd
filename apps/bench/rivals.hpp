// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/contender.hpp"

#include <memory>
#include <string>
#include <vector>

namespace bench {

using Maker = std::unique_ptr<Contender> (*)(const Case& one_case);

/// What Sluice is compared with, and how it does what each bench measures; nullptr: it has nothing comparable.
struct Rival {
  const char* name;
  const char* what;
  bool needs_mpi;
  Maker latency = nullptr;
  Maker bandwidth = nullptr;
  Maker rate = nullptr;
  Maker stream = nullptr;
  Maker halo = nullptr;
  Maker overlap = nullptr;
  Maker scale = nullptr;
};

using RivalColumn = Maker Rival::*;

/// @throws apps::UsageError for an unknown name, and for a rival that cannot run here or has nothing comparable.
void check_rivals(const std::vector<std::string>& against, RivalColumn column);

/// The rivals that the command line asks for and that do what `column` says, in the order of the table. One side of a
/// bench may lack a rival that another has.
std::vector<const Rival*> rivals_for(const std::vector<std::string>& against, RivalColumn column);

}  // namespace bench
