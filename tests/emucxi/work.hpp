// SPDX-License-Identifier: Apache-2.0
// Data operations, and work that waits for a counter.
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_trigger.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace emucxi {

class Counter;
class Domain;
class Endpoint;
struct Settings;

/// One data operation. Its source is the program's memory, read when the operation begins, as by a NIC, unless
/// injected.
struct Transfer {
  Endpoint* endpoint = nullptr;
  fi_op_type kind = FI_OP_WRITE;  // READ, WRITE, ATOMIC, FETCH_ATOMIC or COMPARE_ATOMIC
  fi_addr_t peer = FI_ADDR_UNSPEC;
  iovec local{};
  fi_rma_iov remote{};
  fi_datatype datatype = FI_UINT64;
  fi_op operation = FI_SUM;
  fi_ioc fetched{};
  fi_ioc compared{};
  std::uint64_t flags = 0;
  void* context = nullptr;

  Counter* completion = nullptr;
  bool holds_request = false;  // of its endpoint, until software has read the completion queue
  std::vector<std::byte> injected;

  bool atomic() const { return kind != FI_OP_READ && kind != FI_OP_WRITE; }
};

/// Happens when `trigger` has counted to `threshold`.
struct Work {
  enum class Action { transfer, add, set, write_back };

  Action action = Action::transfer;
  Counter* trigger = nullptr;
  std::uint64_t threshold = 0;
  std::size_t entries = 1;  // of the trigger list, until it fires

  std::unique_ptr<Transfer> transfer;
  Counter* counter = nullptr;  // to add to, to set, or to write back
  std::uint64_t value = 0;
  bool and_write_back = false;  // FI_CXI_CNTR_WB

  bool concerns(const Counter& one) const {
    return trigger == &one || counter == &one || (transfer && transfer->completion == &one);
  }
};

// Check a data operation, deferred or not, and fill in the transfer: 0, or an error.
int check_rma(const Settings& settings, const fi_msg_rma& message, Transfer& transfer);
int check_atomic(const fi_msg_atomic& message, const fi_msg_fetch* fetch, const fi_msg_compare* compare,
                 Transfer& transfer);

/// 0 and the work, if cxi accepts the arguments in `domain`, or an error.
int check_work(Domain& domain, const fi_deferred_work& asked, Work& work);

}  // namespace emucxi
