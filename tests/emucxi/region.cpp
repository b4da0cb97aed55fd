// SPDX-License-Identifier: Apache-2.0
#include "tests/emucxi/region.hpp"

#include <rdma/fi_errno.h>

#include "tests/emucxi/counter.hpp"
#include "tests/emucxi/domain.hpp"
#include "tests/emucxi/endpoint.hpp"
#include "tests/layer/tables.hpp"

namespace emucxi {
namespace {

using layer::object;

constexpr std::uint64_t kRemote = FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr std::uint64_t kProviderKey = std::uint64_t{1} << 63;
constexpr std::uint64_t kClientKeyMax = (std::uint64_t{1} << 32) - 1;

int reg_attributes(fid* handle, const fi_mr_attr* attributes, std::uint64_t flags, fid_mr** region) {
  auto& domain = object<Domain>(handle);
  if (!attributes || attributes->iov_count != 1 || attributes->offset != 0 || flags & ~FI_RMA_EVENT) return -FI_EINVAL;
  if (attributes->iface != FI_HMEM_SYSTEM) return -FI_ENOSYS;
  return domain.locked([&] {
    fi_mr_attr wanted = *attributes;
    if (domain.provider_keys) {
      wanted.requested_key = kProviderKey | ++domain.keys_given;
    } else if (wanted.access & kRemote) {
      if (wanted.requested_key > kClientKeyMax) return -FI_EKEYREJECTED;
      if (!domain.keys.insert(wanted.requested_key).second) return -FI_ENOKEY;
    }
    *region = new Region(domain, wanted, flags);
    return 0;
  });
}

int reg(fid* handle, const void* memory, std::size_t bytes, std::uint64_t access, std::uint64_t offset,
        std::uint64_t key, std::uint64_t flags, fid_mr** region, void* context) {
  const iovec whole = {const_cast<void*>(memory), bytes};
  fi_mr_attr attributes{};
  attributes.mr_iov = &whole;
  attributes.iov_count = 1;
  attributes.access = access;
  attributes.offset = offset;
  attributes.requested_key = key;
  attributes.context = context;
  return reg_attributes(handle, &attributes, flags, region);
}

int bind_region(fid* handle, fid* other, std::uint64_t flags) {
  return layer::locked<Region>(handle, [&](Region& region) {
    switch (other->fclass) {
      case FI_CLASS_EP: return region.bind(object<Endpoint>(other));
      case FI_CLASS_CNTR: return region.bind(object<Counter>(other), flags);
      default: return -FI_EINVAL;
    }
  });
}

fi_ops region_fid_ops = layer::calls<fi_ops>([](fi_ops& has) {
  has.close = layer::close_part<Region>;
  has.bind = bind_region;
  has.control = layer::enable<Region>;
});

}  // namespace

fi_ops_mr region_ops = layer::calls<fi_ops_mr>([](fi_ops_mr& has) {
  has.reg = reg;
  has.regattr = reg_attributes;
});

Region::Region(Domain& owner, const fi_mr_attr& attributes, std::uint64_t flags)
    : Part({{FI_CLASS_MR, attributes.context, &region_fid_ops}, nullptr, FI_KEY_NOTAVAIL}, owner),
      memory_(attributes.mr_iov[0]), access_(attributes.access), wanted_key_(attributes.requested_key),
      events_((flags & FI_RMA_EVENT) != 0) {
  domain.regions.push_back(this);
}

Region::~Region() {
  if (inner_) fi_close(&inner_->fid);
  if (arrivals_) fi_close(&arrivals_->fid);
  if (endpoint_) --endpoint_->users;
  if (counter_) --counter_->users;
  domain.keys.erase(wanted_key_);
  domain.regions.remove(this);
}

int Region::bind(Endpoint& endpoint) {
  if (&endpoint.domain != &domain || enabled_ || endpoint_ || !endpoint.enabled()) return -FI_EINVAL;
  if (events_ && !(endpoint.caps() & FI_RMA_EVENT)) return -FI_EINVAL;
  endpoint_ = &endpoint;
  ++endpoint.users;
  return 0;
}

int Region::bind(Counter& counter, std::uint64_t flags) {
  // cxi itself would take the counter before the endpoint; one order for all keeps programs alike.
  if (&counter.domain != &domain || enabled_ || counter_ || !endpoint_) return -FI_EINVAL;
  if (!(flags & FI_REMOTE_WRITE)) return -FI_EINVAL;
  counter_ = &counter;
  ++counter.users;
  return 0;
}

int Region::enable() {
  if (!endpoint_ || enabled_) return -FI_EINVAL;
  if (const int bad = open_inner()) return bad;
  enabled_ = true;
  key = wanted_key_;
  domain.stir();
  return 0;
}

int Region::open_inner() {
  if (!(access_ & kRemote)) return 0;
  const std::uint64_t flags = counter_ ? FI_RMA_EVENT : 0;
  if (const int bad = fi_mr_reg(domain.inner, memory_.iov_base, memory_.iov_len, access_, 0, wanted_key_, flags,
                                &inner_, nullptr)) {
    return bad;
  }
  if (!counter_) return 0;
  fi_cntr_attr attributes{};
  attributes.events = FI_CNTR_EVENTS_COMP;
  if (const int bad = fi_cntr_open(domain.inner, &attributes, &arrivals_, nullptr)) return bad;
  return fi_mr_bind(inner_, &arrivals_->fid, FI_REMOTE_WRITE);
}

bool Region::poll() {
  const auto total = static_cast<std::uint32_t>(fi_cntr_read(arrivals_));
  const std::uint32_t more = total - counted_;
  counted_ = total;
  if (more) counter_->add(more);
  return more != 0;
}

}  // namespace emucxi
