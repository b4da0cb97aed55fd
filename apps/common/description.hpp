// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/collectives.hpp"

#include <set>
#include <string>

namespace apps {

using Names = std::set<std::string>;

/// "shm+ofi:tcp"; of no names "none".
std::string joined(const Names& names);

/// Parts of the descriptions of channels and plans that reports name. Those texts are for people and have no other
/// form.
struct Description {
  Names backends = {};  ///< what moves the data; empty: no channel is connected
  Names fired_by = {};  ///< stream, NIC or engine; empty: no sender is connected
};

/// Reads the lines of channels in `text` by position: "'name' WHERE, SLOTS: BACKEND: how; fired by the WHO".
Description read_description(const std::string& text);

/// At rank 0 the names of all ranks, elsewhere some of them. All ranks call it.
/// @param ranks  how many there are
Description of_all_ranks(Description mine, Collectives& collectives, int ranks);

}  // namespace apps
