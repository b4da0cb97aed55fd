// SPDX-License-Identifier: Apache-2.0
// How a provider is used, by its description in libfabric.
#include "backends/ofi/manner.hpp"

#include <gtest/gtest.h>
#include <sluice/window.hpp>

#include "backends/ofi/by_number.hpp"
#include "backends/ofi/station.hpp"

#include <span>
#include <string>
#include <vector>

namespace sluice::backends::ofi {
namespace {

struct Told {
  fi_info info{};
  fi_fabric_attr fabric{};
  fi_domain_attr domain{};
  fi_tx_attr transmit{};
  fi_ep_attr endpoint{};
  std::string provider;

  Told(const char* name, std::size_t data_bytes, std::uint64_t caps) : provider(name) {
    fabric.prov_name = provider.data();
    domain.cq_data_size = data_bytes;
    info.caps = caps;
    info.fabric_attr = &fabric;
    info.domain_attr = &domain;
    info.tx_attr = &transmit;
    info.ep_attr = &endpoint;
  }
  Told(const Told&) = delete;
};

constexpr std::uint64_t kTriggers = FI_TRIGGER | FI_RMA_EVENT;

TEST(Manner, level_goes_by_the_bits_that_travel_with_a_put) {
  for (const auto& [bytes, level] : {std::pair{0, 0}, {1, 1}, {2, 1}, {4, 2}, {8, 3}, {16, 3}}) {
    EXPECT_EQ(level_of(Told("some", bytes, FI_RMA).info), level) << bytes;
    EXPECT_EQ(level_of(Told("some", bytes, FI_RMA | kTriggers).info), 4) << bytes;
  }
  EXPECT_EQ(level_of(Told("some", 8, FI_RMA | FI_TRIGGER).info), 3);
}

TEST(Manner, of_a_level_needs_no_more_than_that) {
  const Told told("some", 8, FI_RMA | kTriggers);
  EXPECT_EQ(choose_manner(told.info, 4).notice, Notice::counter);
  EXPECT_EQ(choose_manner(told.info, 0).notice, Notice::word);
  for (const auto& [level, bits] : {std::pair{1, 16}, {2, 32}, {3, 63}}) {
    const Manner manner = choose_manner(told.info, level);
    EXPECT_EQ(manner.notice, Notice::number);
    EXPECT_EQ(manner.index_bits + manner.epoch_bits, bits);
  }
}

TEST(Manner, without_bits_below_level_4_is_a_second_write) {
  const Told told("some", 0, FI_RMA | kTriggers);
  for (const int level : {3, 2, 1, 0}) EXPECT_EQ(choose_manner(told.info, level).notice, Notice::word) << level;
}

TEST(Manner, is_ordered_where_messages_of_any_size_are) {
  Told told("some", 8, FI_RMA);
  told.endpoint.max_msg_size = 1 << 30;
  told.endpoint.max_order_waw_size = 1 << 30;
  EXPECT_FALSE(choose_manner(told.info, 3).ordered);
  told.transmit.msg_order = FI_ORDER_RMA_WAW;
  EXPECT_TRUE(choose_manner(told.info, 3).ordered);
  told.endpoint.max_order_waw_size = 4096;
  EXPECT_FALSE(choose_manner(told.info, 3).ordered);
  told.endpoint.max_order_waw_size = 0;  // ofi_rxm
  EXPECT_TRUE(choose_manner(told.info, 3).ordered);
}

TEST(Manner, of_64_bits_has_room_for_a_put_and_a_credit) {
  const Told told("some", 8, FI_RMA);
  const Manner manner = choose_manner(told.info, 3);
  EXPECT_TRUE(manner.takes_two());
  EXPECT_FALSE(choose_manner(told.info, 2).takes_two());
  Arrivals arrivals(manner);
  base::Word words[2];
  base::Parking parking;
  Slots slots;
  slots.depth = 2;
  for (base::Word& word : words) {
    const Signal signal{&word, &parking, {}};
    slots.slot_bytes = &word == words ? 8 : 0;  // the first moves bytes, the second is of credits
    arrivals.add(std::span(&signal, 1), slots, {{0}, 1});
  }
  const std::uint64_t index_bits = kHalf.index_bits;
  for (std::uint64_t epoch = 1; epoch <= 5000; ++epoch) {  // further than the bits of a half count
    arrivals.landed(two_in_one(kHalf.number(0, epoch), kHalf.number(1, 3 * epoch)), 0);
    ASSERT_EQ(words[0].value.load(), epoch);
    ASSERT_EQ(words[1].value.load(), 3 * epoch);
  }
  arrivals.landed(manner.number(1, 20000), 0);
  EXPECT_EQ(words[1].value.load(), 20000U);
  EXPECT_TRUE(kHalf.has_room((1U << index_bits) - 1, 1023));
  EXPECT_FALSE(kHalf.has_room(1U << index_bits, 1));
  EXPECT_FALSE(kHalf.has_room(0, 1024));
}

TEST(Manner, of_32_bits_names_each_counter_of_a_window) {
  const Told told("some", 8, FI_RMA);
  for (const int level : {2, 3}) {
    const Manner manner = choose_manner(told.info, level);
    EXPECT_TRUE(manner.names_counters(5, Window::kMostCounters));
    EXPECT_FALSE(manner.names_counters(std::uint64_t{1} << manner.index_bits, 1));
    Arrivals arrivals(manner);
    std::vector<base::Progress> first(3);
    std::vector<base::Progress> second(Window::kMostCounters);
    const std::uint64_t one = arrivals.add(first);
    const std::uint64_t other = arrivals.add(second);
    arrivals.landed(manner.number(one, 2), 0);
    arrivals.landed(manner.number(one, 3), 0);  // there is none
    for (int i = 0; i < 2; ++i) arrivals.landed(manner.number(other, Window::kMostCounters - 1), 0);
    EXPECT_EQ(first[2].word.value.load(), 1U);
    EXPECT_EQ(second.back().word.value.load(), 2U);
    EXPECT_EQ(second[2].word.value.load() + second[3].word.value.load(), 0U);
  }
  EXPECT_FALSE(choose_manner(told.info, 1).names_counters(0, 2));
  EXPECT_FALSE(choose_manner(told.info, 0).names_counters(0, 1));
}

TEST(Manner, numbers_of_what_has_closed_count_for_nobody) {
  const Told told("some", 8, FI_RMA);
  const Manner manner = choose_manner(told.info, 3);
  Arrivals arrivals(manner);
  base::Progress first[1];
  base::Progress second[1];
  const std::uint64_t of_lost = arrivals.add(first);
  arrivals.remove(of_lost, false);  // its peer was lost with puts under way
  const std::uint64_t closed = arrivals.add(second);
  EXPECT_NE(closed, of_lost);
  arrivals.landed(manner.number(of_lost, 0), 0);
  arrivals.remove(closed);
  arrivals.landed(manner.number(closed, 0), 0);
  EXPECT_EQ(first[0].word.value.load() + second[0].word.value.load(), 0U);
  EXPECT_EQ(arrivals.add(first), closed);
}

TEST(Manner, numbers_of_landings_of_a_lost_peer_are_not_given_again) {
  const Told told("some", 8, FI_RMA);
  Station station;
  station.manner = choose_manner(told.info, 3);
  Destination there;
  base::Word word;
  base::Parking parking;
  const Signal signal{&word, &parking, {}};
  const auto index = [&] { return new_place(station, there, {{0}, 1}, {{}, 8, 1}, std::span(&signal, 1))->index; };
  const std::uint64_t first = index();
  EXPECT_EQ(index(), first);
  *there.lost = true;
  EXPECT_EQ(index(), first);
  EXPECT_NE(index(), first);
}

// Its writes refuse the data that its messages take.
TEST(Manner, of_cxi_never_sends_data_with_a_write) {
  for (const char* const name : {"cxi", "emucxi"}) {
    EXPECT_EQ(level_of(Told(name, 8, FI_RMA).info), 0) << name;
    EXPECT_EQ(choose_manner(Told(name, 8, FI_RMA | kTriggers).info, 3).notice, Notice::word) << name;
  }
}

}  // namespace
}  // namespace sluice::backends::ofi
