// SPDX-License-Identifier: Apache-2.0
// Which rails of two ranks go together, by what the routes of both hosts say.
#include "backends/ofi/pairs.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::backends::ofi {
namespace {

base::Endpoint ipv4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  base::Endpoint ip;
  ip.version = 4;
  ip.address = {a, b, c, d};
  return ip;
}

EndpointAddress endpoint(const std::string& device, const std::string& network) {
  EndpointAddress address;
  address.device = device;
  address.network = network;
  return address;
}

/// A rank with these devices on networks of these names.
Address rank_with(const std::vector<std::string>& networks) {
  Address address{"tcp", {}};
  for (std::size_t i = 0; i < networks.size(); ++i)
    address.endpoints.push_back(endpoint("eth" + std::to_string(i), networks[i]));
  return address;
}

/// Rails of one host and their grades, row by row.
Grades grades(std::size_t columns, const std::vector<int>& all) {
  Grades grades{columns, {}};
  for (const int grade : all) grades.all.push_back(static_cast<Grade>(grade));
  return grades;
}

/// Both ends must choose the same.
std::vector<Pair> chosen(const Address& one, const Address& other, const Grades& from_one, const Grades& from_other) {
  const std::vector<Pair> pairs = pair_rails(one, other, from_one, from_other, true);
  std::vector<Pair> there = pair_rails(other, one, from_other, from_one, false);
  for (Pair& pair : there) std::swap(pair.ours, pair.theirs);
  EXPECT_EQ(pairs, there);
  return pairs;
}

TEST(Pairs, are_of_rails_on_the_same_network) {
  const Address one = rank_with({"a", "b"});
  const Address other = rank_with({"b", "a"});
  const Grades all = grades(2, {2, 2, 2, 2});
  EXPECT_EQ(chosen(one, other, all, all), (std::vector<Pair>{{0, 1}, {1, 0}}));
}

TEST(Pairs, on_one_network_are_of_equally_near_rails) {
  const Address one = rank_with({"a", "a", "a"});
  const Address other = rank_with({"a", "a"});
  EXPECT_EQ(chosen(one, other, grades(2, {2, 2, 2, 2, 2, 2}), grades(3, {2, 2, 2, 2, 2, 2})),
            (std::vector<Pair>{{0, 0}, {1, 1}}));
}

TEST(Pairs, need_a_route_there_and_one_back) {
  const Address one = rank_with({"a", "docker"});
  const Address other = rank_with({"b"});
  EXPECT_EQ(chosen(one, other, grades(1, {2, 1}), grades(2, {2, 2})), (std::vector<Pair>{{0, 0}}));
  EXPECT_EQ(chosen(one, other, grades(1, {0, 2}), grades(2, {2, 0})), (std::vector<Pair>{}));
}

TEST(Pairs, by_other_devices_are_for_those_that_have_no_better) {
  const Address one = rank_with({"a"});
  const Address other = rank_with({"b"});
  EXPECT_EQ(chosen(one, other, grades(1, {1}), grades(1, {2})), (std::vector<Pair>{{0, 0}}));
}

TEST(Pairs, of_networks_without_ip_are_any) {
  const Address one = rank_with({"a", "b"});
  const Grades all = grades_of(one, one, false);
  EXPECT_EQ(all.all, (std::vector<Grade>(4, Grade::own)));
}

TEST(Pairs, that_lead_to_ourselves_are_for_peers_of_this_host) {
  Address one = rank_with({"lo"});
  one.endpoints[0].ip = ipv4(127, 0, 0, 1);
  EXPECT_EQ(grades_of(one, one, true).at(0, 0), Grade::own);
  EXPECT_EQ(grades_of(one, one, false).at(0, 0), Grade::none);
}

TEST(Pairs, of_different_versions_of_ip_are_none) {
  Address one = rank_with({"lo"});
  Address other = one;
  one.endpoints[0].ip = ipv4(127, 0, 0, 1);
  other.endpoints[0].ip.version = 6;
  other.endpoints[0].ip.address[15] = 1;
  EXPECT_EQ(grades_of(one, other, true).at(0, 0), Grade::none);
}

TEST(Addresses, are_told_whole) {
  Address address = rank_with({"a", ""});
  address.endpoints[1].ip = ipv4(10, 0, 0, 1);
  address.endpoints[1].name = {std::byte{1}, std::byte{2}};
  address.endpoints[1].flushes = {7, 8};
  const Address told = unpack(pack(address));
  ASSERT_EQ(told.endpoints.size(), 2U);
  EXPECT_EQ(told.provider, "tcp");
  EXPECT_EQ(told.endpoints[0].text(), "eth0");
  EXPECT_EQ(told.endpoints[1].text(), "eth1 (10.0.0.1)");
  EXPECT_EQ(told.endpoints[1].name, address.endpoints[1].name);
  EXPECT_EQ(told.endpoints[1].flushes.address, 7U);
  EXPECT_EQ(told.endpoints[1].flushes.key, 8U);
  Blob cut = pack(address);
  cut.pop_back();
  EXPECT_THROW(unpack(cut), std::runtime_error);
}

}  // namespace
}  // namespace sluice::backends::ofi
