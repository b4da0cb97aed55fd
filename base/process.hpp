// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace sluice::base {

/// Returns a number that no other process has, not even one with the same process number in another name space: 64
/// random bits, at an address that stays the same.
const std::uint64_t& process_token();

/// True for the first call in this process by any copy of this library: two plug-ins that are linked with an archive
/// have a copy each. False in children of fork. Sets an environment variable, so no other thread may use the
/// environment meanwhile.
bool first_run_in_process();

/// Identity of a host: a machine, this boot of it, and a network name space. Abstract sockets do not cross name spaces,
/// so that a container with a network of its own is a host of its own. If the system does not tell, the host equals
/// only this process's.
struct Host {
  std::array<char, 40> boot{};
  std::uint64_t network = 0;

  auto operator<=>(const Host&) const = default;
};

[[gnu::visibility("default")]] Host this_host();

/// Returns a name of this process, for `has_ended` in another process.
std::string process_name();

/// True if the process of this name has ended. False if that is unknown: for a process of another host, or of another
/// name space of process numbers, and for a text that is no such name.
bool has_ended(const std::string& process_name);

}  // namespace sluice::base
