// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/provider.hpp"

#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "backends/ofi/leftovers.hpp"
#include "backends/ofi/manner.hpp"
#include "base/env.hpp"
#include "base/text.hpp"

namespace sluice::backends::ofi {
namespace {

/// It is on every host, unless there is no room for its files.
constexpr const char* kShm = "shm";

constexpr std::uint32_t kVersion = FI_VERSION(1, 15);

/// A need that every provider must meet, and the text for one that does not.
struct Need {
  void (*add)(fi_info& hints);
  const char* why_not;
};
constexpr Need kNeeds[] = {
    {[](fi_info& hints) {
       hints.mode = ~std::uint64_t{0};
       hints.domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_RAW | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY |
                                    FI_MR_MMU_NOTIFY | FI_MR_RMA_EVENT | FI_MR_ENDPOINT | FI_MR_HMEM;
     },
     "it has no device here"},
    {[](fi_info& hints) { hints.ep_attr->type = FI_EP_RDM; }, "it has no reliable datagrams"},
    {[](fi_info& hints) { hints.caps = FI_RMA | FI_WRITE | FI_REMOTE_WRITE; }, "it cannot write into others' memory"},
    {[](fi_info& hints) {
       hints.mode = FI_CONTEXT | FI_CONTEXT2;
       hints.domain_attr->threading = FI_THREAD_DOMAIN;
       hints.domain_attr->resource_mgmt = FI_RM_ENABLED;
       hints.domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
     },
     "it wants a mode of use, or of registering memory, that Sluice does not have"},
};

Info provider_hints() {
  Info hints = duplicate(nullptr);
  for (const Need& need : kNeeds) need.add(*hints);
  return hints;
}

std::string device_of(const fi_info& info) { return text(info.domain_attr->name); }

bool any_has_ip(const Devices& devices) {
  return std::ranges::any_of(devices, [](const auto& device) { return ip_of(*device).version != 0; });
}

std::vector<unsigned> own_cores() {
  cpu_set_t set;
  std::vector<unsigned> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (unsigned core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

/// The PCI address of the GPU that the calling thread uses; empty: there is none.
std::string own_gpu() {
  const auto drivers = device::drivers_in_use();
  if (drivers.empty()) return {};
  for (const auto& [name, fact] : drivers.front()->facts(drivers.front()->current_device())) {
    const auto* const text = std::get_if<std::string>(&fact);
    if (name == "bus" && text != nullptr) return *text;
  }
  return {};
}

/// Engines of containers make many bridges, and a rank uses no more than a few devices.
Devices bridges_last(Devices devices) {
  const auto is_bridge = [](const auto& device) {
    std::error_code none;
    return std::filesystem::exists("/sys/class/net/" + device_of(*device) + "/bridge", none);
  };
  std::stable_partition(devices.begin(), devices.end(), std::not_fn(is_bridge));
  return devices;
}

Choice in_order(const Devices& devices, int node_rank) {
  std::vector<Candidate> places;
  for (const auto& device : devices) places.push_back(candidate(*device));
  const Order order = nearest_first(places, {own_cores(), own_gpu(), node_rank});
  Choice choice{{}, order.near};
  for (const std::size_t i : order.devices) choice.devices.push_back(devices[i]);
  return choice;
}

/// Unless it has this address already: the first is the one that the provider prefers.
void add_device(const fi_info& info, Devices& devices) {
  const base::Endpoint ip = ip_of(info);
  const auto same = [&](const auto& device) {
    return device_of(*device) == device_of(info) && device->addr_format == info.addr_format && ip_of(*device) == ip;
  };
  if (!base::link_local(ip) && std::ranges::none_of(devices, same)) devices.push_back(duplicate(&info));
}

/// Addresses of the host's own that are on the loopback, as hosts have them whose links have none. libfabric leaves
/// them out.
void add_addresses_of_loopback(Devices& devices) {
  if (std::ranges::none_of(devices, [](const auto& device) { return base::loopback(ip_of(*device)); })) return;
  for (const base::Endpoint& ip : base::addresses_of("lo")) {
    const auto lo = std::ranges::find_if(devices, [&](const auto& device) {
      return base::loopback(ip_of(*device)) && ip_of(*device).version == ip.version;
    });
    if (base::loopback(ip) || lo == devices.end()) continue;
    const Info info = duplicate(lo->get());
    base::replace_address(*static_cast<sockaddr*>(info->src_addr), ip);
    add_device(*info, devices);
  }
}

/// As libfabric sees them now.
Devices devices_now(const Provider& provider) {
  const Info hints = provider_hints();
  hints->fabric_attr->prov_name = strdup(provider.full_name.c_str());
  const Info all = ask(hints.get());
  Devices devices;
  for (const fi_info* info = all.get(); info != nullptr; info = info->next) {
    if (text(info->fabric_attr->prov_name) == provider.full_name) add_device(*info, devices);
  }
  add_addresses_of_loopback(devices);
  return devices;
}

/// Devices, and why they are not what was wanted; empty: they are.
struct Selection {
  Devices devices;
  std::string why_not;
};

/// It may lead to the peers. Between hosts no loopback does.
bool suits(const fi_info& device, const Settings& settings) {
  const base::Endpoint ip = ip_of(device);
  return ip.version == 0 || (base::loopback(ip) == settings.one_host && base::usable(ip));
}

Selection select_named(const Devices& all, const std::string& provider, const Settings& settings) {
  Selection selection;
  for (const auto name : base::words_of(settings.domains)) {
    const auto device = std::ranges::find_if(all, [&](const auto& one) { return device_of(*one) == name; });
    if (device == all.end()) {
      selection.why_not = "SLUICE_NICS=" + settings.domains + ": provider " + provider + " has no network device \"" +
                          std::string(name) + "\"";
      return selection;
    }
    selection.devices.push_back(*device);
  }
  return selection;
}

/// Each device once: of one with several addresses one is enough.
template <class Fits>
Devices one_each(const Devices& all, Fits fits) {
  Devices chosen;
  for (const auto& device : all) {
    const auto same = [&](const auto& other) { return device_of(*other) == device_of(*device); };
    if (fits(*device) && std::ranges::none_of(chosen, same)) chosen.push_back(device);
  }
  return chosen;
}

Selection select(Devices all, const std::string& provider, const Settings& settings) {
  const auto preferred = [&](const auto& device) {
    return std::pair(!suits(*device, settings), settings.ip_version != ip_of(*device).version);
  };
  std::ranges::stable_sort(all, {}, preferred);
  if (!settings.domains.empty()) return select_named(all, provider, settings);
  if (!settings.interface.empty() && any_has_ip(all)) {
    const auto addresses = base::addresses_of(settings.interface);
    Devices devices =
        one_each(all, [&](const auto& device) { return std::ranges::count(addresses, ip_of(device)) != 0; });
    if (!devices.empty()) return {devices, {}};
    return {{}, "SLUICE_INTERFACE=" + settings.interface + ": provider " + provider + " has no network device there"};
  }
  Devices devices = one_each(all, [&](const auto& device) { return suits(device, settings); });
  if (devices.empty() && settings.one_host) devices = std::move(all);
  if (!devices.empty()) return {devices, {}};
  return {{},
          "provider " + provider +
              " has no network device that is up and leads to other hosts (SLUICE_NICS, SLUICE_INTERFACE)"};
}

/// True while another look may find more devices: longer if none was found, else only for links that just come up.
bool may_find_more(const Selection& found, const Settings& settings, base::Clock::duration waited) {
  constexpr auto kForAny = std::chrono::seconds(5);
  constexpr auto kForMore = std::chrono::milliseconds(1500);  // Linux says that a link is up a second later
  if (settings.one_host) return false;
  if (!found.why_not.empty()) return waited < kForAny && base::interface_comes_up(true);
  const bool chosen = !settings.domains.empty() || !settings.interface.empty();
  return !chosen && any_has_ip(found.devices) && waited < kForMore && base::interface_comes_up();
}

std::vector<Provider> look() {
  std::vector<Provider> found;
  if (!library().why_not.empty()) return found;
  remove_leftovers();  // else shm may find no room
  const Info all = ask(provider_hints().get());
  for (const fi_info* info = all.get(); info != nullptr; info = info->next) {
    const std::string full = text(info->fabric_attr->prov_name);
    auto provider = std::ranges::find(found, full, &Provider::full_name);
    if (provider == found.end()) {
      // `tcp;ofi_rxm` is `tcp`: the layer that adds reliable datagrams is no news to the user.
      const std::string name = full.substr(0, full.find(';'));
      const bool taken = std::ranges::count(found, name, &Provider::name) != 0;
      const bool other_hosts = (info->caps & FI_LOCAL_COMM) == 0 || (info->caps & FI_REMOTE_COMM) != 0;
      provider = found.insert(found.end(), {taken ? full : name, full, {}, false, other_hosts});
    }
    add_device(*info, provider->devices);
  }
  std::erase_if(found, [](const Provider& provider) { return provider.devices.empty(); });
  for (Provider& provider : found) {
    add_addresses_of_loopback(provider.devices);
    provider.triggers = ask(wanting(*provider.devices.front(), kTriggerCaps).get()) != nullptr;
  }
  return found;
}

}  // namespace

const std::vector<Provider>& providers() {
  static const std::vector<Provider> found = look();
  return found;
}

const std::string& why_no_shm() {
  static const std::string why = [] {
    if (std::ranges::count(providers(), kShm, &Provider::name) > 0 || !library().why_not.empty()) return std::string();
    return unmet(kShm);
  }();
  return why;
}

Info wanting(const fi_info& device, std::uint64_t caps) {
  Info hints = duplicate(&device);
  hints->caps |= caps;
  hints->tx_attr->caps |= caps & ~FI_REMOTE_READ;
  hints->rx_attr->caps |= caps & ~FI_READ;
  if ((caps & FI_HMEM) != 0) hints->domain_attr->mr_mode |= FI_MR_HMEM;
  return hints;
}

Info ask(const fi_info* hints, std::uint64_t flags) {
  fi_info* answer = nullptr;
  library().getinfo(kVersion, nullptr, nullptr, flags, hints, &answer);
  return Info(answer);
}

std::string unmet(const std::string& provider) {
  const Info hints = duplicate(nullptr);
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  for (const Need& need : kNeeds) {
    need.add(*hints);
    if (ask(hints.get()) == nullptr)
      return provider == kShm ? std::string(need.why_not) + ": " + state_of_dev_shm() : need.why_not;
  }
  return {};
}

std::string backend_name(const Provider& provider) {
  const bool own_name = provider.name == "cxi" || provider.name == "emucxi";
  return own_name ? provider.name : "ofi:" + provider.name;
}

Candidate candidate(const fi_info& device) {
  Candidate place{device_of(device), text(device.fabric_attr->name), {}};
  const fi_bus_attr* const bus = device.nic == nullptr ? nullptr : device.nic->bus_attr;
  if (bus != nullptr && bus->bus_type == FI_BUS_PCI) {
    const fi_pci_attr& pci = bus->attr.pci;
    place.pci = base::hexadecimal(pci.domain_id, 4) + ':' + base::hexadecimal(pci.bus_id, 2) + ':' +
                base::hexadecimal(pci.device_id, 2) + '.' + base::hexadecimal(pci.function_id);
  }
  return place;
}

base::Endpoint ip_of(const fi_info& device) noexcept {
  base::Endpoint ip;
  const bool known = device.addr_format == FI_SOCKADDR || device.addr_format == FI_SOCKADDR_IN ||
                     device.addr_format == FI_SOCKADDR_IN6;
  if (known) ip = base::endpoint_of(static_cast<const sockaddr*>(device.src_addr));
  ip.port = 0;
  return ip;
}

Choice choose_devices(const Provider& provider, const Settings& settings) {
  const auto began = base::Clock::now();
  Selection found = select(provider.devices, provider.full_name, settings);
  while (may_find_more(found, settings, base::Clock::now() - began)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    found = select(devices_now(provider), provider.full_name, settings);
  }
  if (!found.why_not.empty()) throw std::invalid_argument(found.why_not);
  if (!settings.domains.empty()) return {found.devices, found.devices.size()};
  return in_order(bridges_last(std::move(found.devices)), settings.node_rank);
}

}  // namespace sluice::backends::ofi
