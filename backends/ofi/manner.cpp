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
  const char* const name = info.fabric_attr->prov_name;
  // cxi reports the size for messages. It refuses writes that carry data (cxip_rma.c).
  const bool messages_only = name != nullptr && std::string_view(name).ends_with("cxi");
  return messages_only ? 0 : info.domain_attr->cq_data_size;
}

int level_of(const fi_info& info) noexcept { return (~info.caps & kTriggerCaps) == 0 ? 4 : data_level(info); }

Manner choose_manner(const fi_info& info, int level) noexcept {
  Manner manner;
  manner.ordered = in_order(info);
  level = std::min(level, level_of(info));
  if (level == 4) {
    manner.notice = Notice::counter;
    return manner;
  }
  level = std::min(level, data_level(info));
  if (level == 0) return manner;
  manner.notice = Notice::number;
  if (level == 1) {
    manner.index_bits = data_bytes(info) == 1 ? 8 : 16;
  } else {
    manner.index_bits = level == 2 ? 20 : 32;
    manner.epoch_bits = level == 2 ? 12 : 31;
  }
  return manner;
}

Manner half() noexcept {
  Manner manner;
  manner.notice = Notice::number;
  manner.index_bits = 20;
  manner.epoch_bits = kHalfBits - manner.index_bits;
  return manner;
}

}  // namespace sluice::backends::ofi
