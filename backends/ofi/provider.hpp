// SPDX-License-Identifier: Apache-2.0
// The providers that libfabric has here, as far as they can carry channels.
#pragma once

#include <string>
#include <vector>

#include "backends/ofi/fabric.hpp"
#include "backends/ofi/locality.hpp"
#include "backends/transport.hpp"

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

/// Where a device is, as far as libfabric says.
Candidate candidate(const fi_info& device);

/// The devices of a provider that a rank uses, best first: those that the settings name, else the reachable ones, the
/// nearest first.
/// @throws std::invalid_argument for a name that it does not have.
std::vector<std::shared_ptr<const fi_info>> choose_devices(const Provider& provider, const Settings& settings);

}  // namespace sluice::backends::ofi
