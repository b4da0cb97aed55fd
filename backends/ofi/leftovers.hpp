// SPDX-License-Identifier: Apache-2.0
// Files in /dev/shm, where libfabric's provider shm has one for each endpoint. A process that is killed leaves its own.
#pragma once

#include <cstddef>
#include <string>

namespace sluice::backends::ofi {

/// Removes the files of this user whose owner is proved dead: no process has such a file open or mapped, in this name
/// space of processes or in another. Keeps all others.
void remove_leftovers() noexcept;

/// How much room there is, and the largest files, whose owners live or are not known.
std::string state_of_dev_shm();

/// True if this many bytes are free. A store to a page that finds no room would end the process with SIGBUS.
bool dev_shm_has_room(std::size_t bytes);

}  // namespace sluice::backends::ofi
