// SPDX-License-Identifier: Apache-2.0
// The providers that libfabric has here, as far as they can carry channels.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backends/ofi/fabric.hpp"
#include "backends/ofi/locality.hpp"
#include "backends/transport.hpp"
#include "base/network.hpp"

namespace sluice::backends::ofi {

using Devices = std::vector<std::shared_ptr<const fi_info>>;

struct Provider {
  std::string name;          ///< as a backend, without `ofi:`
  std::string full_name;     ///< libfabric's own, with the layers on top
  Devices devices;           ///< one a network device, as libfabric prefers them
  bool triggers = false;     ///< deferred work, and counters of what lands
  bool other_hosts = false;  ///< reaches other hosts
};

/// Providers that can write into the memory of others, in libfabric's order of preference. Found at the first call. Any
/// thread.
const std::vector<Provider>& providers();

/// Why the provider `shm`, which needs no network, is not among them; empty: it is, or there is no libfabric.
const std::string& why_no_shm();

/// Why a provider of libfabric cannot carry channels here: the first need that it does not meet; empty: it meets all.
std::string unmet(const std::string& provider);

/// `cxi` goes by its own name, others are of `ofi`.
std::string backend_name(const Provider& provider);

/// Hints for libfabric: the device, and these capabilities as well.
Info wanting(const fi_info& device, std::uint64_t caps);

/// Returns the devices of libfabric that offer what the hints want (null: anything). Empty: none does.
Info ask(const fi_info* hints, std::uint64_t flags = 0);

/// The address of a device; version 0: it has no IP.
base::Endpoint ip_of(const fi_info& device) noexcept;

/// The place of a device, as far as libfabric says.
Candidate candidate(const fi_info& device);

/// Devices, best first.
struct Choice {
  Devices devices;
  std::size_t near = 0;  ///< the first so many are as good as the first
};

/// The devices of a provider that a rank uses: those that the settings name, else all that may lead to its peers, the
/// nearest first. Waits a few seconds for one that is coming up.
/// @throws std::invalid_argument for a name that it does not have; and if none leads to other hosts.
Choice choose_devices(const Provider& provider, const Settings& settings);

}  // namespace sluice::backends::ofi
