// SPDX-License-Identifier: Apache-2.0
// The calls on a domain, as libfabric's inline functions find them.
#include "tests/emucxi/domain_ops.hpp"

#include <string_view>

#include "tests/emucxi/addresses.hpp"
#include "tests/emucxi/counter.hpp"
#include "tests/emucxi/cxi.hpp"
#include "tests/emucxi/domain.hpp"
#include "tests/emucxi/endpoint.hpp"
#include "tests/emucxi/fabric.hpp"
#include "tests/emucxi/queue.hpp"
#include "tests/emucxi/region.hpp"
#include "tests/layer/object.hpp"

namespace emucxi {
namespace {

using layer::kAbsent;
using layer::object;

int close(fid* handle) {
  auto& domain = object<Domain>(handle);
  if (domain.locked([&] { return domain.in_use(); })) return -FI_EBUSY;
  delete &domain;
  return 0;
}

int control(fid* handle, int command, void* argument) {
  auto& domain = object<Domain>(handle);
  switch (command) {
    case FI_QUEUE_WORK:
      return domain.locked([&] { return domain.queue(*static_cast<const fi_deferred_work*>(argument)); });
    case FI_FLUSH_WORK: domain.flush(); return 0;
    default: return -FI_EINVAL;  // FI_CANCEL_WORK among them
  }
}

int get_dwq_depth(fid* handle, std::size_t* depth) {
  *depth = object<Domain>(handle).settings.usable_entries();
  return 0;
}

DomainOps domain_ops = {.cntr_read = kAbsent,
                        .topology = kAbsent,
                        .enable_hybrid_mr_desc = kAbsent,
                        .ep_get_unexp_msgs = kAbsent,
                        .get_dwq_depth = get_dwq_depth,
                        .enable_mr_match_events = kAbsent,
                        .enable_optimized_mrs = kAbsent};

int ops_open(fid*, const char* name, std::uint64_t, void** ops, void*) {
  const std::string_view asked = name;
  const std::string_view family = kDomainOps;
  if (asked.size() != family.size() + 1 || !asked.starts_with(family)) return -FI_EINVAL;
  if (asked.back() < '1' || asked.back() > '6') return -FI_EINVAL;
  *ops = &domain_ops;
  return 0;
}

fi_ops fid_ops = {.size = sizeof(fi_ops),
                  .close = close,
                  .bind = kAbsent,
                  .control = control,
                  .ops_open = ops_open,
                  .tostr = kAbsent,
                  .ops_set = kAbsent};
fi_ops_domain calls = {.size = sizeof(fi_ops_domain),
                       .av_open = open_addresses,
                       .cq_open = open_queue,
                       .endpoint = open_endpoint,
                       .scalable_ep = kAbsent,
                       .cntr_open = open_counter,
                       .poll_open = kAbsent,
                       .stx_ctx = kAbsent,
                       .srx_ctx = kAbsent,
                       .query_atomic = kAbsent,
                       .query_collective = kAbsent,
                       .endpoint2 = kAbsent};

}  // namespace

void set_domain_ops(Domain& domain) {
  domain.fid.ops = &fid_ops;
  domain.ops = &calls;
  domain.mr = &region_ops;
}

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
  if (!(info->domain_attr->mr_mode & FI_MR_ENDPOINT)) return -FI_EINVAL;
  const std::optional<Settings> settings = settings_from_environment();
  if (!settings) return -FI_EINVAL;
  auto& owner = *static_cast<Fabric*>(fabric);
  fid_domain* inner = nullptr;
  if (const int bad = fi_domain(owner.inner, owner.inner_info, &inner, nullptr)) return bad;
  *domain = new Domain(owner, *info, *settings, inner, context);
  return 0;
}

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
  if (info->ep_attr && info->ep_attr->type != FI_EP_RDM) return -FI_EINVAL;
  auto& owner = *static_cast<Domain*>(domain);
  return owner.locked([&] {
    auto* const opened = new Endpoint(owner, *info, context);
    owner.endpoints.push_back(opened);
    *endpoint = opened;
    return 0;
  });
}

}  // namespace emucxi
