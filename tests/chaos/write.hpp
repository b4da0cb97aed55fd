// SPDX-License-Identifier: Apache-2.0
// A write that a program has posted.
#pragma once

#include <rdma/fi_rma.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chaos {

class Counter;

struct Write {
  fi_addr_t peer = FI_ADDR_UNSPEC;
  const std::byte* source = nullptr;  // the program's memory, until the write completes locally
  std::size_t bytes = 0;
  fi_rma_iov target{};
  std::uint64_t data = 0;
  std::uint64_t flags = 0;
  void* context = nullptr;
  Counter* completion = nullptr;

  std::vector<std::byte> copy;
  std::size_t steps_left = 0;
  bool completed = false;  // as the program sees it
  bool failed = false;

  bool has(std::uint64_t flag) const { return (flags & flag) != 0; }
  void copy_source() {
    copy.assign(source, source + bytes);
    source = copy.data();
  }
};

}  // namespace chaos
