// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/queue.hpp"

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <array>

#include "tests/chaos/domain.hpp"

namespace chaos {

Queue::Queue(Domain& owner, const fi_cq_attr& attributes, int descriptor, fid_cq* wrapped, int below, void* context)
    : layer::Queue(owner, attributes, descriptor, context), inner(wrapped), inner_descriptor(below), domain_(owner) {
  domain_.queues.push_back(this);
}

Queue::~Queue() {
  std::erase(domain_.queues, this);
  fi_close(&inner->fid);
}

void Queue::progress() { domain_.turn(); }

void Queue::complete(void* context, int error) {
  fi_cq_err_entry entry{};
  entry.op_context = context;
  entry.flags = FI_RMA | FI_WRITE;
  entry.err = entry.prov_errno = error;
  add(entry);
  announce();
}

void Queue::poll() {
  std::array<fi_cq_data_entry, 16> entries;
  for (;;) {
    const ssize_t count = fi_cq_read(inner, entries.data(), entries.size());
    if (count == -FI_EAVAIL) {
      poll_error();
      continue;
    }
    if (count <= 0) return;
    for (ssize_t i = 0; i < count; ++i) {
      const fi_cq_data_entry& one = entries[static_cast<std::size_t>(i)];
      if (!(one.flags & FI_REMOTE_CQ_DATA)) {
        domain_.complete(one.op_context, 0);
      } else if (domain_.settings.counters) {
        domain_.count(one.data);
      } else {
        fi_cq_err_entry entry{};
        entry.flags = one.flags;
        entry.data = one.data;
        add(entry);
        announce();
      }
    }
  }
}

void Queue::poll_error() {
  fi_cq_err_entry failed{};
  if (fi_cq_readerr(inner, &failed, 0) == 1) domain_.complete(failed.op_context, failed.err ? failed.err : FI_EIO);
}

int open_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context) {
  auto& owner = *static_cast<Domain*>(domain);
  const fi_cq_attr wanted = attributes ? *attributes : fi_cq_attr{};
  const int descriptor = layer::wait_descriptor(wanted.wait_obj);
  if (descriptor < -1) return descriptor;
  fi_cq_attr below{};
  below.format = FI_CQ_FORMAT_DATA;
  below.wait_obj = FI_WAIT_FD;
  fid_cq* inner = nullptr;
  if (const int bad = fi_cq_open(owner.inner, &below, &inner, nullptr)) return bad;
  int inner_descriptor = -1;
  if (const int bad = fi_control(&inner->fid, FI_GETWAIT, &inner_descriptor)) return bad;
  return owner.locked([&] {
    *queue = new Queue(owner, wanted, descriptor, inner, inner_descriptor, context);
    owner.stir();
    return 0;
  });
}

}  // namespace chaos
