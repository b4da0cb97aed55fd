// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/info.hpp"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cstdlib>
#include <utility>

#include "tests/chaos/keys.hpp"
#include "tests/chaos/settings.hpp"

namespace chaos {
namespace {

constexpr std::uint64_t kCaps = FI_RMA | FI_WRITE | FI_REMOTE_WRITE | FI_LOCAL_COMM;
constexpr std::uint64_t kOrder = FI_ORDER_WAW | FI_ORDER_RMA_WAW;

bool fits(const fi_info& hints, const fi_info& below, const Settings& settings) {
  const std::uint64_t caps = kCaps | (settings.counters ? kCounterCaps : 0);
  const std::uint64_t order = settings.ordered ? kOrder : 0;
  if (hints.caps & ~caps) return false;
  if (hints.addr_format != FI_FORMAT_UNSPEC && hints.addr_format != below.addr_format) return false;
  if (hints.fabric_attr && !layer::names(hints.fabric_attr->name, below.fabric_attr->name)) return false;
  if (hints.domain_attr && !layer::names(hints.domain_attr->name, below.domain_attr->name)) return false;
  if (hints.ep_attr && hints.ep_attr->type != FI_EP_UNSPEC && hints.ep_attr->type != FI_EP_RDM) return false;
  return !(hints.tx_attr && hints.tx_attr->msg_order & ~order) && !(hints.rx_attr && hints.rx_attr->msg_order & ~order);
}

/// Order and counters are granted only where the hints name them.
void describe(fi_info& info, const fi_info* hints, const Settings& settings) {
  info.caps = kCaps | (hints ? hints->caps & kCounterCaps : 0);
  info.mode = 0;
  info.tx_attr->caps = info.caps & ~FI_REMOTE_WRITE;
  info.rx_attr->caps = info.caps & ~FI_WRITE;
  info.tx_attr->mode = info.rx_attr->mode = 0;
  info.tx_attr->msg_order = hints && hints->tx_attr ? hints->tx_attr->msg_order : 0;
  info.rx_attr->msg_order = info.tx_attr->msg_order;
  info.tx_attr->inject_size = settings.inject;
  info.tx_attr->size = settings.tx_size;
  info.tx_attr->iov_limit = info.tx_attr->rma_iov_limit = 1;
  info.domain_attr->cq_data_size = settings.data_bytes;
  info.domain_attr->mr_key_size = Keys::kBits / 8;
  info.domain_attr->caps = FI_LOCAL_COMM;
  std::free(info.fabric_attr->prov_name);  // libfabric fills in ours
  info.fabric_attr->prov_name = nullptr;
}

}  // namespace

int get_info(std::uint32_t, const char* node, const char* service, std::uint64_t, const fi_info* hints,
             fi_info** info) {
  const auto settings = settings_from_environment();
  if (node || service || !settings) return -FI_ENODATA;
  layer::Info given = info_below();
  if (!given || (hints && !fits(*hints, *given, *settings))) return -FI_ENODATA;
  describe(*given, hints, *settings);
  *info = given.release();
  return 0;
}

layer::Info info_below() {
  layer::Info hints(fi_allocinfo());
  hints->caps = FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_WAW;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  return layer::info_below("tcp;ofi_rxm", std::move(hints));
}

}  // namespace chaos
