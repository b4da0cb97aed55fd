// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/provider.hpp"

#include <netinet/in.h>
#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>

#include "backends/ofi/leftovers.hpp"
#include "backends/ofi/manner.hpp"
#include "base/env.hpp"
#include "base/text.hpp"

namespace sluice::backends::ofi {
namespace {

/// It is on every host, unless there is no room for its files.
constexpr const char* kShm = "shm";

constexpr std::uint32_t kVersion = FI_VERSION(1, 15);

Info empty_hints() {
  Info hints(library().dupinfo(nullptr));
  if (hints == nullptr) throw std::bad_alloc();
  return hints;
}

/// What every provider must offer, and what is said of one that does not. The rest is looked at in what it offers.
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

Info hints() {
  Info hints = empty_hints();
  for (const Need& need : kNeeds) need.add(*hints);
  return hints;
}

/// The first need of a provider that is not met; empty: all are.
std::string unmet(const std::string& provider) {
  const Info hints = empty_hints();
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  std::string why;
  for (const Need& need : kNeeds) {
    need.add(*hints);
    if (ask(*hints, why) != nullptr) continue;
    return provider == kShm ? std::string(need.why_not) + ": " + state_of_dev_shm() : need.why_not;
  }
  return {};
}

std::string text(const char* text) { return text == nullptr ? std::string() : std::string(text); }

std::string device_of(const fi_info& info) { return text(info.domain_attr->name); }

/// `tcp;ofi_rxm` is `tcp`: the layer that adds reliable datagrams is no news to the user.
std::string short_name(const std::string& full) { return full.substr(0, full.find(';')); }

bool is_loopback(const fi_info& info) {
  const auto* const address = static_cast<const sockaddr*>(info.src_addr);
  if (address == nullptr) return false;
  if (address->sa_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

/// Of the name of an endpoint; empty: it has none.
std::span<const std::byte> ip_of(std::span<const std::byte> name) noexcept {
  sa_family_t family = AF_UNSPEC;
  if (name.size() >= sizeof(sockaddr_in))
    std::memcpy(&family, name.data() + offsetof(sockaddr, sa_family), sizeof family);
  if (family == AF_INET) return name.subspan(offsetof(sockaddr_in, sin_addr), sizeof(in_addr));
  if (family == AF_INET6 && name.size() >= sizeof(sockaddr_in6))
    return name.subspan(offsetof(sockaddr_in6, sin6_addr), sizeof(in6_addr));
  return {};
}

bool is_link_local(const fi_info& info) {
  const auto* const address = static_cast<const sockaddr*>(info.src_addr);
  return address != nullptr && address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
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

/// Of the GPU that the calling thread uses, if there is any.
std::optional<PciAddress> own_gpu() {
  const auto drivers = device::drivers_in_use();
  if (drivers.empty()) return std::nullopt;
  device::Driver* const driver = drivers.front();
  for (const auto& [name, fact] : driver->facts(driver->current_device())) {
    const auto* const text = std::get_if<std::string>(&fact);
    unsigned domain = 0, bus = 0, device = 0, function = 0;
    if (name == "bus" && text != nullptr &&
        std::sscanf(text->c_str(), "%x:%x:%x.%x", &domain, &bus, &device, &function) == 4)
      return PciAddress{domain, bus, device, function};
  }
  return std::nullopt;
}

Choice in_order(const Devices& devices, int node_rank) {
  std::vector<Candidate> places;
  for (const auto& device : devices) places.push_back(candidate(*device));
  const Order order = nearest_first(places, {own_cores(), own_gpu(), node_rank});
  Choice choice{{}, order.near};
  for (const std::size_t i : order.devices) choice.devices.push_back(devices[i]);
  return choice;
}

std::vector<Provider> look() {
  std::vector<Provider> found;
  if (!library().why_not.empty()) return found;
  std::string why;
  remove_leftovers();  // else shm may find no room
  const Info all = ask(*hints(), why);
  for (const fi_info* info = all.get(); info != nullptr; info = info->next) {
    const std::string full = text(info->fabric_attr->prov_name);
    auto provider = std::find_if(found.begin(), found.end(), [&](const auto& one) { return one.full_name == full; });
    if (provider == found.end()) {
      const std::string name = short_name(full);
      const bool taken = std::any_of(found.begin(), found.end(), [&](const auto& one) { return one.name == name; });
      found.push_back({taken ? full : name,
                       full,
                       {},
                       false,
                       (info->caps & FI_LOCAL_COMM) == 0 || (info->caps & FI_REMOTE_COMM) != 0});
      provider = found.end() - 1;
    }
    // The first of a device is the one that the provider prefers.
    const auto same = [&](const auto& device) {
      return device_of(*device) == device_of(*info) && device->addr_format == info->addr_format;
    };
    if (is_link_local(*info) || std::any_of(provider->devices.begin(), provider->devices.end(), same)) continue;
    provider->devices.emplace_back(duplicate(*info).release(), FreeInfo());
  }
  std::erase_if(found, [](const Provider& provider) { return provider.devices.empty(); });
  for (Provider& provider : found) {
    provider.triggers = ask(*wanting(*provider.devices.front(), kTriggerCaps), why) != nullptr;
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
  Info hints = duplicate(device);
  hints->caps |= caps;
  hints->tx_attr->caps |= caps & ~FI_REMOTE_READ;
  hints->rx_attr->caps |= caps & ~FI_READ;
  if ((caps & FI_HMEM) != 0) hints->domain_attr->mr_mode |= FI_MR_HMEM;
  return hints;
}

Info ask(const fi_info& hints, std::string& why) {
  fi_info* answer = nullptr;
  const int code = library().getinfo(kVersion, nullptr, nullptr, 0, &hints, &answer);
  if (code < 0) why = text_of(code);
  return Info(answer);
}

std::vector<Unusable> unusable_providers() {
  std::vector<Unusable> found;
  fi_info* list = nullptr;
  library().getinfo(kVersion, nullptr, nullptr, FI_PROV_ATTR_ONLY, nullptr, &list);
  const Info all(list);
  for (const fi_info* info = list; info != nullptr; info = info->next) {
    const std::string name = text(info->fabric_attr->prov_name);
    if (name.starts_with("ofi_")) continue;  // a layer on top of others
    const std::string why_not = unmet(name);
    if (!why_not.empty()) found.push_back({name, info->fabric_attr->prov_version, why_not});
  }
  return found;
}

std::string backend_name(const Provider& provider) {
  const bool own_name = provider.name == "cxi" || provider.name == "emucxi";
  return own_name ? provider.name : "ofi:" + provider.name;
}

Candidate candidate(const fi_info& device) {
  Candidate place{device_of(device), text(device.fabric_attr->name), std::nullopt};
  const fi_bus_attr* const bus = device.nic == nullptr ? nullptr : device.nic->bus_attr;
  if (bus != nullptr && bus->bus_type == FI_BUS_PCI) {
    const fi_pci_attr& pci = bus->attr.pci;
    place.pci = PciAddress{pci.domain_id, pci.bus_id, pci.device_id, pci.function_id};
  }
  return place;
}

bool same_address(const std::vector<std::byte>& one, const std::vector<std::byte>& other) noexcept {
  const std::span<const std::byte> address = ip_of(one);
  return !address.empty() && std::ranges::equal(address, ip_of(other));
}

Choice choose_devices(const Provider& provider, const Settings& settings) {
  Devices chosen;
  for (const auto name : base::words_of(settings.domains)) {
    const auto device = std::find_if(provider.devices.begin(), provider.devices.end(),
                                     [&](const auto& one) { return device_of(*one) == name; });
    if (device == provider.devices.end()) {
      throw std::invalid_argument("SLUICE_NICS=" + settings.domains + ": provider " + provider.full_name +
                                  " has no network device \"" + std::string(name) + "\"");
    }
    chosen.push_back(*device);
  }
  if (!chosen.empty()) return {chosen, chosen.size()};
  // Of a device with several addresses the first is enough.
  for (const auto& device : provider.devices) {
    const auto same = [&](const auto& other) { return device_of(*other) == device_of(*device); };
    if (is_loopback(*device) == settings.one_host && std::none_of(chosen.begin(), chosen.end(), same))
      chosen.push_back(device);
  }
  return in_order(chosen.empty() ? provider.devices : chosen, settings.node_rank);
}

}  // namespace sluice::backends::ofi
