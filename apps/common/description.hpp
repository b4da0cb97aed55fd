// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/host_collectives.hpp"

#include <set>
#include <string>

namespace apps {

using Names = std::set<std::string>;

/// "shm+ofi:tcp"; "none" for no names.
std::string joined(const Names& names);

/// The parts of descriptions of channels and plans that reports name. Those texts are written for people; there is no
/// other form of them.
struct Description {
  Names backends = {};  ///< that move the data; empty: no channel is connected
  Names fired_by = {};  ///< stream, NIC or engine; empty: no sender is connected
};

/// Reads the lines of channels in `text` by position: "'name' WHERE, SLOTS: BACKEND: how; fired by the WHO".
Description read_description(const std::string& text);

/// Returns the names of all ranks at rank 0, elsewhere those of some ranks. All ranks call it.
/// @param ranks  the number of ranks
Description of_all_ranks(Description mine, HostCollectives& collectives, int ranks);

}  // namespace apps
