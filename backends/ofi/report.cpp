// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <optional>

#include "backends/ofi/page_bell.hpp"
#include "backends/ofi/provider.hpp"
#include "backends/ofi/transport.hpp"

namespace sluice::backends::ofi {
namespace {

using Value = base::Fact;
using Facts = Report::Facts;

Value known(const char* text) {
  if (text == nullptr || *text == '\0') return {};
  return std::string(text);
}

template <class Number>
Value known(const std::optional<Number>& number) {
  if (!number) return {};
  return std::uint64_t{*number};
}

std::string version(std::uint32_t number) {
  return std::to_string(FI_MAJOR(number)) + "." + std::to_string(FI_MINOR(number));
}

const char* state_of(const fi_link_attr& link) {
  if (link.state == FI_LINK_UNKNOWN) return nullptr;
  return link.state == FI_LINK_UP ? "up" : "down";
}

Facts facts_of_device(const fi_info& device, const Topology& topology) {
  const Candidate place = candidate(device);
  const base::Endpoint ip = ip_of(device);
  const bool has_link = device.nic != nullptr && device.nic->link_attr != nullptr;
  const fi_link_attr link = has_link ? *device.nic->link_attr : fi_link_attr{};
  return {{"device", place.name},
          {"network", known(place.network.c_str())},
          {"address", ip.version == 0 ? known(link.address) : base::address_text(ip)},
          {"link_bits_per_second", link.speed == 0 ? Value() : std::uint64_t{link.speed}},
          {"link", known(state_of(link))},
          {"pci", known(place.pci.c_str())},
          {"numa_node", known(topology.numa_node(place))}};
}

std::string notice_of(const Manner& manner) {
  const std::string landing = std::to_string(manner.index_bits) + " bits name the landing";
  switch (manner.notice) {
    case Notice::counter: return "the NIC counts what has landed";
    case Notice::number:
      return "a number comes with each put: " + landing +
             (manner.epoch_bits == 0 ? "" : ", " + std::to_string(manner.epoch_bits) + " its epoch");
    case Notice::word: break;
  }
  return "a second write raises the signal";
}

/// How puts are fired, and how those that cannot be fired so.
std::string fired_by(const Rail& rail) {
  if (!rail.triggers()) return "engine";
  return pages_work(rail) ? "NIC, rung by a store to its page; else engine" : "NIC, rung by the engine; else engine";
}

/// How the NIC's page is rung for a GPU's streams, and for its kernels.
std::pair<Value, Value> rung_for_gpus_by(const Rail& rail) {
  device::Driver* const driver = device::any_driver();
  if (driver == nullptr || !rail.triggers() || !pages_work(rail)) return {};
  const device::OnDevice current(*driver, 0);
  std::mutex alone;
  const Ringers ringers = choose_ringers(*driver, rail, alone);
  return {std::string(name(ringers.for_streams)), std::string(ringers.kernels ? "the kernel" : name(Ringer::engine))};
}

std::string registration(std::uint64_t mode) {
  constexpr std::pair<std::uint64_t, const char*> kBits[] = {
      {FI_MR_LOCAL, "local"},       {FI_MR_VIRT_ADDR, "virt_addr"}, {FI_MR_ALLOCATED, "allocated"},
      {FI_MR_PROV_KEY, "prov_key"}, {FI_MR_ENDPOINT, "endpoint"},   {FI_MR_HMEM, "hmem"}};
  std::string text;
  for (const auto& [bit, name] : kBits) {
    if ((mode & bit) != 0) text += (text.empty() ? "" : " ") + std::string(name);
  }
  return text;
}

Facts facts_of(const Rail& rail) {
  const fi_info& info = rail.info();
  const auto entries = rail.triggers() ? armable(rail) : std::nullopt;
  const auto [for_streams, for_kernels] = rung_for_gpus_by(rail);
  const bool takes_device_memory = ask(wanting(info, FI_HMEM).get()) != nullptr;
  return {{"notice", notice_of(choose_manner(info, level_of(info)))},
          {"fired_by", fired_by(rail)},
          {"rung_for_gpus_by", for_streams},
          {"rung_for_their_kernels_by", for_kernels},
          {"deferred_work", rail.triggers()},
          {"trigger_entries", known(entries)},
          {"engine_waits", std::string(rail.wait_fd() < 0 ? "polls every millisecond" : "sleeps on a descriptor")},
          {"remote_data_bytes", std::uint64_t{data_bytes(info)}},
          {"ordered_writes", choose_manner(info, 0).ordered},
          {"inject_bytes", std::uint64_t{info.tx_attr->inject_size}},
          {"max_message_bytes", std::uint64_t{info.ep_attr->max_msg_size}},
          {"registration", known(registration(static_cast<std::uint64_t>(info.domain_attr->mr_mode)).c_str())},
          {"device_memory", std::string(takes_device_memory ? "hmem" : "staged")}};
}

Report report(const Provider& provider, const Topology& topology) {
  const fi_info& device = *provider.devices.front();
  Report report;
  report.name = backend_name(provider);
  report.facts = {{"provider", provider.full_name},
                  {"version", version(device.fabric_attr->prov_version)},
                  {"libfabric", version(library().version())}};
  for (const auto& one : provider.devices) report.devices.push_back(facts_of_device(*one, topology));
  try {
    const Rail rail(device, true, false);
    report.level = level_of(rail.info());
    const Facts more = facts_of(rail);
    report.facts.insert(report.facts.end(), more.begin(), more.end());
  } catch (const std::exception& error) {
    report.why_not = error.what();
  }
  return report;
}

}  // namespace

std::vector<Report> reports() {
  if (!library().why_not.empty()) return {Report{"libfabric", 0, library().why_not, {}, {}}};
  const Topology topology;
  std::vector<Report> all;
  for (const Provider& provider : providers()) all.push_back(report(provider, topology));
  const Info installed = ask(nullptr, FI_PROV_ATTR_ONLY);
  for (const fi_info* info = installed.get(); info != nullptr; info = info->next) {
    const std::string name = text(info->fabric_attr->prov_name);
    if (name.starts_with("ofi_")) continue;  // a layer on top of others
    const Facts versions = {{"version", version(info->fabric_attr->prov_version)},
                            {"libfabric", version(library().version())}};
    if (const std::string why_not = unmet(name); !why_not.empty()) all.push_back({name, 0, why_not, versions, {}});
  }
  return all;
}

}  // namespace sluice::backends::ofi
