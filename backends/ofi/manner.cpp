// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/manner.hpp"

#include <algorithm>
#include <string_view>

namespace sluice::backends::ofi {

bool Manner::has_room(std::uint64_t index, int depth) const noexcept {
  if (notice != Notice::number || index >> index_bits != 0) return false;
  // Half of the numbers are of epochs that have been.
  return epoch_bits == 0 || epoch_bits > 31 || depth < 1 << (epoch_bits - 1);
}

bool Manner::names_counters(std::uint64_t index, std::size_t counters) const noexcept {
  return notice == Notice::number && index >> index_bits == 0 && counters <= std::size_t{1} << epoch_bits;
}

namespace {

int data_level(const fi_info& info) noexcept {
  const std::size_t bytes = data_bytes(info);
  if (bytes >= 8) return 3;
  if (bytes >= 4) return 2;
  return bytes >= 1 ? 1 : 0;
}

/// Messages of any size: some providers keep the order of small ones alone (max_order_waw_size). That says 0 for none,
/// and so does ofi_rxm where it has atomics, beside an order that it keeps.
bool in_order(const fi_info& info) noexcept {
  const std::size_t up_to = info.ep_attr->max_order_waw_size;
  return (info.tx_attr->msg_order & (FI_ORDER_WAW | FI_ORDER_RMA_WAW)) != 0 &&
         (up_to == 0 || up_to >= info.ep_attr->max_msg_size);
}

}  // namespace

std::size_t data_bytes(const fi_info& info) noexcept {
  // cxi reports the size for messages. It refuses writes that carry data (cxip_rma.c).
  const bool messages_only = std::string_view(info.fabric_attr->prov_name).ends_with("cxi");
  return messages_only ? 0 : info.domain_attr->cq_data_size;
}

int level_of(const fi_info& info) noexcept { return (~info.caps & kTriggerCaps) == 0 ? 4 : data_level(info); }

Manner choose_manner(const fi_info& info, int level) noexcept {
  const bool ordered = in_order(info);
  if (std::min(level, level_of(info)) == 4) return {Notice::counter, 0, 0, ordered};
  switch (std::min(level, data_level(info))) {
    case 0: return {Notice::word, 0, 0, ordered};
    case 1: return {Notice::number, data_bytes(info) == 1 ? 8 : 16, 0, ordered};
    case 2: return {Notice::number, 20, 12, ordered};
    default: return {Notice::number, 32, 31, ordered};
  }
}

}  // namespace sluice::backends::ofi
