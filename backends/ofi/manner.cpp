// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/manner.hpp"

#include <algorithm>

namespace sluice::backends::ofi {

bool Manner::has_room(std::uint64_t index, int depth) const noexcept {
  if (notice != Notice::data || index >> index_bits != 0) return false;
  // Half of the numbers are of epochs that have been.
  return epoch_bits == 0 || epoch_bits > 31 || depth < 1 << (epoch_bits - 1);
}

int level_of(const fi_info& info) noexcept {
  if ((~info.caps & (FI_TRIGGER | FI_RMA_EVENT)) == 0) return 4;
  const std::size_t bytes = info.domain_attr->cq_data_size;
  if (bytes >= 8) return 3;
  if (bytes >= 4) return 2;
  return bytes >= 1 ? 1 : 0;
}

Manner choose_manner(const fi_info& info, int level) noexcept {
  Manner manner;
  manner.ordered = (info.tx_attr->msg_order & (FI_ORDER_WAW | FI_ORDER_RMA_WAW)) != 0;
  level = std::min(level, level_of(info));
  if (level == 0) return manner;
  if (level == 4) {
    manner.notice = Notice::counter;
    return manner;
  }
  manner.notice = Notice::data;
  if (level == 1) {
    manner.index_bits = info.domain_attr->cq_data_size == 1 ? 8 : 16;
  } else {
    manner.index_bits = level == 2 ? 20 : 32;
    manner.epoch_bits = level == 2 ? 12 : 32;
  }
  return manner;
}

}  // namespace sluice::backends::ofi
