// SPDX-License-Identifier: Apache-2.0
// The calls on a domain, as libfabric's inline functions find them.
#include <string_view>

#include "tests/emucxi/addresses.hpp"
#include "tests/emucxi/counter.hpp"
#include "tests/emucxi/cxi.hpp"
#include "tests/emucxi/domain.hpp"
#include "tests/emucxi/endpoint.hpp"
#include "tests/emucxi/queue.hpp"
#include "tests/emucxi/region.hpp"
#include "tests/layer/tables.hpp"

namespace emucxi {
namespace {

using layer::kAbsent;
using layer::object;

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

DomainOps cxi_ops = {.cntr_read = kAbsent,
                     .topology = kAbsent,
                     .enable_hybrid_mr_desc = kAbsent,
                     .ep_get_unexp_msgs = kAbsent,
                     .get_dwq_depth = get_dwq_depth,
                     .enable_mr_match_events = kAbsent,
                     .enable_optimized_mrs = kAbsent};

int open_domain_ops(fid*, const char* name, std::uint64_t, void** ops, void*) {
  const std::string_view asked = name;
  const std::string_view family = kDomainOps;
  if (asked.size() != family.size() + 1 || !asked.starts_with(family)) return -FI_EINVAL;
  if (asked.back() < '1' || asked.back() > '6') return -FI_EINVAL;
  *ops = &cxi_ops;
  return 0;
}

fi_ops domain_fid_ops = layer::calls<fi_ops>([](fi_ops& has) {
  has.close = layer::close<Domain>;
  has.control = control;
  has.ops_open = open_domain_ops;
});
fi_ops_domain calls = layer::calls<fi_ops_domain>([](fi_ops_domain& has) {
  has.av_open = open_addresses;
  has.cq_open = open_queue;
  has.endpoint = open_endpoint;
  has.cntr_open = open_counter;
});

}  // namespace

void set_domain_ops(Domain& domain) {
  domain.fid.ops = &domain_fid_ops;
  domain.ops = &calls;
  domain.mr = &region_ops;
}

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
  if (!(info->domain_attr->mr_mode & FI_MR_ENDPOINT)) return -FI_EINVAL;
  const std::optional<Settings> settings = settings_from_environment();
  if (!settings) return -FI_EINVAL;
  auto& owner = *static_cast<layer::Fabric*>(fabric);
  fid_domain* inner = nullptr;
  if (const int bad = fi_domain(owner.inner, owner.inner_info.get(), &inner, nullptr)) return bad;
  *domain = new Domain(owner, *info, *settings, inner, context);
  return 0;
}

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
  if (info->ep_attr && info->ep_attr->type != FI_EP_RDM) return -FI_EINVAL;
  auto& owner = *static_cast<Domain*>(domain);
  return owner.locked([&] {
    *endpoint = new Endpoint(owner, *info, context);
    return 0;
  });
}

}  // namespace emucxi
