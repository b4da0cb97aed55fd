// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rdma/fi_rma.h>

#include <cstdint>

namespace layer {

/// A read or write of one piece of memory. Points to `local` and `remote`.
inline fi_msg_rma message(const iovec& local, const fi_rma_iov& remote, fi_addr_t peer, void* context = nullptr,
                          std::uint64_t data = 0) {
  return {.msg_iov = &local,
          .desc = nullptr,
          .iov_count = 1,
          .addr = peer,
          .rma_iov = &remote,
          .rma_iov_count = 1,
          .context = context,
          .data = data};
}

}  // namespace layer
