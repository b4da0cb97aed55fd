// SPDX-License-Identifier: Apache-2.0
// Which network devices a rank uses first, on the node that four_nics.xml describes: four NUMA nodes, each with two L3
// caches of two cores, and behind one host bridge a NIC (hsn0 to hsn3) and two GPU dies, one of them behind the same
// switch as the NIC. The NICs are not in the order of the NUMA nodes. The file has no comments: without its plugin for
// libxml, hwloc does not read such.
#include "backends/ofi/locality.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/ofi/by_number.hpp"
#include "backends/ofi/provider.hpp"
#include "base/text.hpp"

namespace sluice::backends::ofi {
namespace {

using Indices = std::vector<std::size_t>;

constexpr unsigned kNics[] = {0xc5, 0xcd, 0xd5, 0xdd};  // their buses
constexpr std::size_t kNicOfNode[] = {2, 1, 3, 0};
constexpr unsigned kCoresOfNode = 4;

std::vector<unsigned> cores_of(std::initializer_list<unsigned> nodes) {
  std::vector<unsigned> cores;
  for (const unsigned node : nodes) {
    for (unsigned core = 0; core < kCoresOfNode; ++core) cores.push_back(node * kCoresOfNode + core);
  }
  return cores;
}

std::string pci(unsigned bus) { return "0000:" + base::hexadecimal(bus, 2) + ":00.0"; }

std::vector<Candidate> four_nics() {
  std::vector<Candidate> devices;
  for (const unsigned bus : kNics) devices.push_back({"cxi" + std::to_string(devices.size()), "cxi", pci(bus)});
  return devices;
}

Indices order_of(const std::vector<Candidate>& devices, const Standpoint& from) {
  return nearest_first(devices, from).devices;
}

class Nics : public testing::Test {
 protected:
  void SetUp() override { ::setenv("HWLOC_XMLFILE", FOUR_NICS_XML, 1); }
  void TearDown() override { ::unsetenv("HWLOC_XMLFILE"); }
};

TEST_F(Nics, of_the_numa_node_that_a_rank_runs_on_come_first) {
  for (unsigned node = 0; node < 4; ++node) {
    EXPECT_EQ(order_of(four_nics(), {cores_of({node}), {}, 0}).front(), kNicOfNode[node]) << node;
    EXPECT_EQ(order_of(four_nics(), {{node * kCoresOfNode + 1}, {}, 3}).front(), kNicOfNode[node]) << node;
  }
}

TEST_F(Nics, of_both_numa_nodes_that_a_rank_runs_on_come_before_the_others) {
  const Indices order = order_of(four_nics(), {cores_of({0, 2}), {}, 0});
  EXPECT_EQ(std::set(order.begin(), order.begin() + 2), (std::set<std::size_t>{kNicOfNode[0], kNicOfNode[2]}));
}

TEST_F(Nics, that_are_equally_near_are_used_by_different_ranks_first) {
  std::vector<std::size_t> firsts;
  for (int rank = 0; rank < 8; ++rank)
    firsts.push_back(order_of(four_nics(), {cores_of({0, 1, 2, 3}), {}, rank}).front());
  EXPECT_EQ(firsts, (Indices{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(order_of(four_nics(), {cores_of({0, 1, 2, 3}), {}, 1}), (Indices{1, 2, 3, 0}));
}

TEST_F(Nics, near_to_the_gpu_come_before_those_near_to_the_cores) {
  for (const unsigned bus : {0xc1, 0xc6}) {
    const Indices order = order_of(four_nics(), {cores_of({0}), pci(bus), 2});
    EXPECT_EQ(order[0], 0U) << bus;
    EXPECT_EQ(order[1], kNicOfNode[0]) << bus;
  }
}

TEST_F(Nics, whose_place_is_not_known_come_last_in_the_given_order) {
  std::vector<Candidate> devices = four_nics();
  devices[0].pci = pci(1);
  devices[1].pci.clear();
  EXPECT_EQ(order_of(devices, {cores_of({0, 1, 2, 3}), {}, 1}), (Indices{3, 2, 0, 1}));
}

TEST_F(Nics, of_the_first_network_come_first_so_that_peers_agree) {
  std::vector<Candidate> devices = four_nics();
  devices[2].network = devices[3].network = "another";
  const Indices order = order_of(devices, {cores_of({0}), {}, 1});
  EXPECT_EQ(order, (Indices{1, 0, 2, 3}));
}

TEST_F(Nics, say_how_many_are_as_near_as_the_first) {
  EXPECT_EQ(nearest_first(four_nics(), {cores_of({1}), {}, 0}).near, 1U);
  EXPECT_EQ(nearest_first(four_nics(), {cores_of({1, 3}), {}, 0}).near, 2U);
  EXPECT_EQ(nearest_first(four_nics(), {cores_of({0, 1, 2, 3}), {}, 5}).near, 4U);
}

TEST(Endpoints, begin_landings_in_turn_at_the_near_ones) {
  const std::vector<std::size_t> numbers = {0, 2, 3, 5};
  for (const std::size_t near : {1U, 2U, 4U}) {
    const Endpoints endpoints{numbers, near};
    std::set<std::size_t> begins;
    for (std::uint64_t index = 0; index < 12; ++index) {
      begins.insert(endpoints.of(index, 0));
      std::set<std::size_t> used;
      for (std::size_t rail = 0; rail < numbers.size(); ++rail) used.insert(endpoints.of(index, rail));
      EXPECT_EQ(used.size(), numbers.size());
    }
    EXPECT_EQ(begins, std::set<std::size_t>(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(near)));
  }
}

TEST_F(Nics, without_a_pci_address_are_known_by_their_name) {
  const std::vector<Candidate> devices = {{"hsn0", "", {}}, {"hsn3", "", {}}};
  EXPECT_EQ(order_of(devices, {cores_of({2}), {}, 0}), (Indices{1, 0}));
}

TEST_F(Nics, belong_to_numa_nodes) {
  const Topology topology;
  for (unsigned node = 0; node < 4; ++node) EXPECT_EQ(topology.numa_node(four_nics()[kNicOfNode[node]]), node);
  EXPECT_EQ(topology.numa_node({"no_such_device", "", {}}), std::nullopt);
}

// Devices of a provider, named and placed as libfabric would say it.
class Devices : public Nics {
 protected:
  struct Device {
    fi_info info{};
    fi_fabric_attr fabric{};
    fi_domain_attr domain{};
    fid_nic nic{};
    fi_bus_attr bus{};
    std::string name;
  };

  void add(unsigned bus) {
    auto device = std::make_shared<Device>();
    device->name = "cxi" + std::to_string(provider_.devices.size());
    device->domain.name = device->name.data();
    device->info.domain_attr = &device->domain;
    device->info.fabric_attr = &device->fabric;
    device->info.nic = &device->nic;
    device->nic.bus_attr = &device->bus;
    device->bus.bus_type = FI_BUS_PCI;
    device->bus.attr.pci = {0, static_cast<std::uint8_t>(bus), 0, 0};
    provider_.devices.emplace_back(device, &device->info);
  }

  std::vector<std::string> chosen(const std::string& nics, int node_rank) const {
    Settings settings;
    settings.domains = nics;
    settings.node_rank = node_rank;
    settings.one_host = false;
    std::vector<std::string> names;
    for (const auto& device : choose_devices(provider_, settings).devices)
      names.emplace_back(device->domain_attr->name);
    return names;
  }

  Provider provider_{"cxi", "cxi", {}, true, true};
};

TEST_F(Devices, are_placed_by_the_pci_address_that_libfabric_gives) {
  for (const unsigned bus : kNics) add(bus);
  const Candidate place = candidate(*provider_.devices[kNicOfNode[3]]);
  EXPECT_EQ(place.name, "cxi0");
  ASSERT_EQ(place.pci, pci(kNics[kNicOfNode[3]]));
  EXPECT_EQ(Topology().numa_node(place), 3U);
}

TEST_F(Devices, at_one_place_are_used_by_different_ranks_first) {
  for (int i = 0; i < 4; ++i) add(kNics[0]);
  EXPECT_EQ(chosen("", 0), (std::vector<std::string>{"cxi0", "cxi1", "cxi2", "cxi3"}));
  EXPECT_EQ(chosen("", 3), (std::vector<std::string>{"cxi3", "cxi0", "cxi1", "cxi2"}));
}

TEST_F(Devices, that_the_user_names_are_used_as_they_are_named) {
  for (const unsigned bus : kNics) add(bus);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(chosen("cxi3,cxi1", rank), (std::vector<std::string>{"cxi3", "cxi1"}));
  EXPECT_THROW(chosen("cxi9", 0), std::invalid_argument);
}

}  // namespace
}  // namespace sluice::backends::ofi
