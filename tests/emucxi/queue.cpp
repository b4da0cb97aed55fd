// SPDX-License-Identifier: Apache-2.0
#include "tests/emucxi/queue.hpp"

#include <rdma/fi_errno.h>

#include "tests/emucxi/domain.hpp"
#include "tests/emucxi/endpoint.hpp"

namespace emucxi {
namespace {

std::uint64_t kind_flags(const Transfer& transfer) {
  const bool reads = transfer.kind == FI_OP_READ || transfer.fetched.addr;
  return (transfer.atomic() ? FI_ATOMIC : FI_RMA) | (reads ? FI_READ : FI_WRITE);
}

}  // namespace

void Queue::finished(std::unique_ptr<Transfer> transfer, int error) {
  finished_.push_back({std::move(transfer), error});
  announce();
}

void Queue::progress() {
  for (const auto& [transfer, error] : finished_) {
    if (transfer->holds_request) transfer->endpoint->give_back_request();
    if (!error && !(transfer->flags & FI_COMPLETION)) continue;
    fi_cq_err_entry entry{};
    entry.op_context = transfer->context;
    entry.flags = kind_flags(*transfer);
    entry.err = error;
    entry.prov_errno = error;
    add(entry);
    if (++entries_ == transfer->endpoint->domain.settings.overrun_at) overrun();
  }
  finished_.clear();
}

void Queue::forget(const Endpoint& endpoint) {
  std::erase_if(finished_, [&](const Finished& one) { return one.transfer->endpoint == &endpoint; });
}

int open_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context) {
  const fi_cq_attr wanted = attributes ? *attributes : fi_cq_attr{};
  const int descriptor = layer::wait_descriptor(wanted.wait_obj);
  if (descriptor < -1) return descriptor;
  *queue = new Queue(*static_cast<Domain*>(domain), wanted, descriptor, context);
  return 0;
}

}  // namespace emucxi
