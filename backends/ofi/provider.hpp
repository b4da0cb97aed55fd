// SPDX-License-Identifier: Apache-2.0
// The providers that libfabric has here, as far as they can carry channels.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backends/ofi/fabric.hpp"

namespace sluice::backends::ofi {

struct Provider {
  std::string name;                                     ///< as a backend, without `ofi:`
  std::string full_name;                                ///< libfabric's own, with the layers on top
  std::vector<std::shared_ptr<const fi_info>> devices;  ///< one a network device, as libfabric prefers them
  bool triggers = false;                                ///< deferred work, and counters of what lands
  bool other_hosts = false;                             ///< reaches other hosts
};

/// What can write into the memory of others, in libfabric's order of preference. Found at the first call. Any thread.
const std::vector<Provider>& providers();

/// Asks for what the devices of `info` offer. Empty: nothing, with `why`.
Info ask(const fi_info& hints, std::string& why);

/// Whether two endpoints, by their names, have the same IP address.
bool same_address(const std::vector<std::byte>& one, const std::vector<std::byte>& other) noexcept;

/// The devices of a provider that a rank uses, best first: those named in `nics`, else the reachable ones.
/// @throws std::invalid_argument for a name that it does not have.
std::vector<std::shared_ptr<const fi_info>> choose_devices(const Provider& provider, const std::string& nics,
                                                           bool one_host);

}  // namespace sluice::backends::ofi
