// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/counter.hpp"

#include <rdma/fi_errno.h>

#include "tests/chaos/domain.hpp"
#include "tests/chaos/endpoint.hpp"
#include "tests/layer/tables.hpp"

namespace chaos {
namespace {

Counter& counter_of(fid_cntr* handle) { return *static_cast<Counter*>(handle); }

std::uint64_t read(fid_cntr* handle) {
  return layer::locked<Counter>(&handle->fid, [](Counter& counter) {
    counter.domain.turn();
    return counter.value();
  });
}

std::uint64_t readerr(fid_cntr* handle) {
  return layer::locked<Counter>(&handle->fid, [](const Counter& counter) { return counter.failures(); });
}

int add(fid_cntr* handle, std::uint64_t value) {
  return layer::locked<Counter>(&handle->fid, [&](Counter& counter) {
    counter.add(value, 0);
    return 0;
  });
}

fi_ops counter_fid_ops = layer::calls<fi_ops>([](fi_ops& has) { has.close = layer::close_part<Counter>; });
fi_ops_cntr cntr_ops = layer::calls<fi_ops_cntr>([](fi_ops_cntr& has) {
  has.read = read;
  has.readerr = readerr;
  has.add = add;
});

int bind_region(fid* handle, fid* other, std::uint64_t flags) {
  if (other->fclass != FI_CLASS_CNTR || flags != FI_REMOTE_WRITE) return -FI_EINVAL;
  return layer::locked<Region>(handle, [&](Region& region) {
    region.counter = &layer::object<Counter>(other);
    return 0;
  });
}

fi_ops region_fid_ops = layer::calls<fi_ops>([](fi_ops& has) {
  has.close = layer::close_part<Region>;
  has.bind = bind_region;
});

}  // namespace

Counter::Counter(Domain& owner, void* context) : Part({{FI_CLASS_CNTR, context, &counter_fid_ops}, &cntr_ops}, owner) {}

Counter::~Counter() { domain.forget(*this); }

void Counter::add(std::uint64_t value, std::uint64_t failures) {
  value_ += value;
  failures_ += failures;
  fire();
}

void Counter::arm(std::uint64_t threshold, Endpoint& endpoint, Write write) {
  armed_.emplace(threshold, std::pair(&endpoint, std::move(write)));
  fire();
}

void Counter::fire() {
  while (!armed_.empty() && armed_.begin()->first <= value_) {
    auto first = armed_.extract(armed_.begin());
    auto& [endpoint, write] = first.mapped();
    endpoint->begin(std::move(write));
  }
}

Region::Region(Domain& owner, fid_mr* wrapped, void* context)
    : Part({{FI_CLASS_MR, context, &region_fid_ops}, fi_mr_desc(wrapped), fi_mr_key(wrapped)}, owner), inner_(wrapped) {
  domain.regions.push_back(this);
}

Region::~Region() {
  std::erase(domain.regions, this);
  domain.keys.close(fi_mr_key(inner_));
  fi_close(&inner_->fid);
}

int open_counter(fid_domain* domain, fi_cntr_attr*, fid_cntr** counter, void* context) {
  auto& owner = *static_cast<Domain*>(domain);
  *counter = new Counter(owner, context);
  return 0;
}

int queue_work(const Settings& settings, const fi_deferred_work& asked) {
  if (asked.op_type != FI_OP_WRITE) return -FI_ENOSYS;
  Write write;
  if (const int bad = check_write(settings, asked.op.rma->msg, asked.op.rma->flags, write)) return bad;
  if (asked.completion_cntr) write.completion = &counter_of(asked.completion_cntr);
  counter_of(asked.triggering_cntr).arm(asked.threshold, *static_cast<Endpoint*>(asked.op.rma->ep), std::move(write));
  return 0;
}

}  // namespace chaos
