// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/counter.hpp"

#include <rdma/fi_errno.h>

#include "tests/chaos/domain.hpp"
#include "tests/chaos/endpoint.hpp"
#include "tests/chaos/endpoint_ops.hpp"
#include "tests/layer/object.hpp"

namespace chaos {
namespace {

using layer::kAbsent;
using layer::object;

Counter& counter_of(fid_cntr* handle) { return *static_cast<Counter*>(handle); }

template <class F>
auto locked(fid_cntr* handle, F call) {
  return counter_of(handle).domain().locked([&] { return call(counter_of(handle)); });
}

std::uint64_t read(fid_cntr* handle) {
  return locked(handle, [](Counter& counter) {
    counter.domain().turn();
    return counter.value();
  });
}

std::uint64_t readerr(fid_cntr* handle) {
  return locked(handle, [](Counter& counter) { return counter.failures(); });
}

int add(fid_cntr* handle, std::uint64_t value) {
  return locked(handle, [&](Counter& counter) {
    counter.add(value, 0);
    return 0;
  });
}

int close(fid* handle) {
  auto& counter = object<Counter>(handle);
  return counter.domain().locked([&] {
    delete &counter;
    return 0;
  });
}

fi_ops fid_ops = {.size = sizeof(fi_ops),
                  .close = close,
                  .bind = kAbsent,
                  .control = kAbsent,
                  .ops_open = kAbsent,
                  .tostr = kAbsent,
                  .ops_set = kAbsent};
fi_ops_cntr cntr_ops = {.size = sizeof(fi_ops_cntr),
                        .read = read,
                        .readerr = readerr,
                        .add = add,
                        .set = kAbsent,
                        .wait = kAbsent,
                        .adderr = kAbsent,
                        .seterr = kAbsent};

int bind_region(fid* handle, fid* other, std::uint64_t flags) {
  auto& region = object<Region>(handle);
  if (other->fclass != FI_CLASS_CNTR || flags != FI_REMOTE_WRITE) return -FI_EINVAL;
  return region.domain().locked([&] {
    region.counter = &object<Counter>(other);
    return 0;
  });
}

int close_region(fid* handle) {
  auto& region = object<Region>(handle);
  return region.domain().locked([&] {
    delete &region;
    return 0;
  });
}

fi_ops region_ops = {.size = sizeof(fi_ops),
                     .close = close_region,
                     .bind = bind_region,
                     .control = kAbsent,
                     .ops_open = kAbsent,
                     .tostr = kAbsent,
                     .ops_set = kAbsent};

}  // namespace

Counter::Counter(Domain& domain, void* context)
    : fid_cntr{{FI_CLASS_CNTR, context, &fid_ops}, &cntr_ops}, domain_(domain) {}

Counter::~Counter() { domain_.forget(*this); }

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

Region::Region(Domain& domain, fid_mr* wrapped, void* context)
    : fid_mr{{FI_CLASS_MR, context, &region_ops}, fi_mr_desc(wrapped), fi_mr_key(wrapped)}, domain_(domain),
      inner_(wrapped) {
  domain_.regions.push_back(this);
}

Region::~Region() {
  std::erase(domain_.regions, this);
  domain_.keys.close(fi_mr_key(inner_));
  fi_close(&inner_->fid);
}

int open_counter(fid_domain* domain, fi_cntr_attr*, fid_cntr** counter, void* context) {
  auto& owner = *static_cast<Domain*>(domain);
  *counter = new Counter(owner, context);
  return 0;
}

int queue_work(Domain& domain, const fi_deferred_work& asked) {
  if (asked.op_type != FI_OP_WRITE) return -FI_ENOSYS;
  Write write;
  if (const int bad = check_write(domain.settings, asked.op.rma->msg, asked.op.rma->flags, write)) return bad;
  if (asked.completion_cntr) write.completion = &counter_of(asked.completion_cntr);
  counter_of(asked.triggering_cntr).arm(asked.threshold, *static_cast<Endpoint*>(asked.op.rma->ep), std::move(write));
  return 0;
}

}  // namespace chaos
