// SPDX-License-Identifier: Apache-2.0
#include "tests/emucxi/info.hpp"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cstring>
#include <utility>

#include "tests/emucxi/cxi.hpp"
#include "tests/emucxi/settings.hpp"

namespace emucxi {
namespace {

constexpr std::uint64_t kWays = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr std::uint64_t kNearAndFar = FI_LOCAL_COMM | FI_REMOTE_COMM;
constexpr std::uint64_t kCaps = FI_RMA | FI_ATOMIC | FI_TRIGGER | FI_RMA_EVENT | kWays | kNearAndFar;
constexpr std::uint64_t kOrders = FI_ORDER_SAS | FI_ORDER_WAW | FI_ORDER_RMA_WAW | FI_ORDER_RMA_RAR |
                                  FI_ORDER_ATOMIC_WAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_RAR;

using layer::names;

/// True if a program supports the modes that cxi requires. cxi adds FI_MR_ALLOCATED if a program hints FI_MR_ENDPOINT
/// alone.
bool can_register(int modes) { return modes == FI_MR_ENDPOINT || (modes & FI_MR_ENDPOINT && modes & FI_MR_ALLOCATED); }

bool fits(const fi_domain_attr& domain) {
  return names(domain.name, kDomain) && can_register(domain.mr_mode) && domain.control_progress != FI_PROGRESS_AUTO &&
         domain.data_progress != FI_PROGRESS_AUTO;
}

bool fits(const fi_ep_attr& endpoint) {
  return (endpoint.type == FI_EP_UNSPEC || endpoint.type == FI_EP_RDM) &&
         (endpoint.protocol == FI_PROTO_UNSPEC || endpoint.protocol == FI_PROTO_CXI) && endpoint.tx_ctx_cnt <= 1 &&
         endpoint.rx_ctx_cnt <= 1;
}

bool fits(const fi_tx_attr& transmit, const Settings& settings) {
  return !(transmit.caps & ~kCaps) && !(transmit.msg_order & ~kOrders) && transmit.size <= settings.tx_size &&
         transmit.inject_size <= kInjectSize && transmit.iov_limit <= 1 && transmit.rma_iov_limit <= 1;
}

bool fits(const fi_info& hints, const Settings& settings) {
  if (hints.caps & ~kCaps) return false;
  if (hints.addr_format != FI_FORMAT_UNSPEC && hints.addr_format != FI_ADDR_CXI) return false;
  return (!hints.fabric_attr || names(hints.fabric_attr->name, kProvider)) &&
         (!hints.domain_attr || fits(*hints.domain_attr)) && (!hints.ep_attr || fits(*hints.ep_attr)) &&
         (!hints.tx_attr || fits(*hints.tx_attr, settings)) &&
         (!hints.rx_attr || !(hints.rx_attr->caps & ~kCaps || hints.rx_attr->msg_order & ~kOrders));
}

int check_source(const char* node, const char* service, std::uint64_t flags) {
  if (!node && !service) return flags & FI_SOURCE ? -FI_EINVAL : 0;
  return node && !service && flags & FI_SOURCE && names(node, kDomain) ? 0 : -FI_EINVAL;
}

/// FI_RMA_EVENT is granted only if hinted; all directions of reads and writes if none is hinted.
std::uint64_t granted_caps(const fi_info* hints) {
  if (!hints || !hints->caps) return kCaps & ~FI_RMA_EVENT;
  const std::uint64_t ways = hints->caps & kWays ? hints->caps & kWays : kWays;
  return (hints->caps & ~kWays) | ways | kNearAndFar;
}

void describe_data_path(fi_info& info, const fi_info* hints, const Settings& settings) {
  const fi_tx_attr* const asked = hints ? hints->tx_attr : nullptr;
  fi_tx_attr& transmit = *info.tx_attr;
  transmit.caps = info.caps & ~(FI_REMOTE_READ | FI_REMOTE_WRITE);
  transmit.op_flags = asked ? asked->op_flags : 0;
  transmit.msg_order = asked && asked->msg_order ? asked->msg_order : kOrders;
  transmit.inject_size = kInjectSize;
  transmit.size = asked && asked->size ? asked->size : settings.tx_size;
  transmit.iov_limit = 1;
  transmit.rma_iov_limit = 1;
  transmit.tclass = asked ? asked->tclass : 0;
  info.rx_attr->caps = info.caps & ~(FI_READ | FI_WRITE);
  info.rx_attr->msg_order = transmit.msg_order;
  info.rx_attr->iov_limit = 1;
  fi_ep_attr& endpoint = *info.ep_attr;
  endpoint.type = FI_EP_RDM;
  endpoint.protocol = FI_PROTO_CXI;
  endpoint.protocol_version = 1;
  endpoint.max_msg_size = settings.message;
  endpoint.max_order_waw_size = SIZE_MAX;
  endpoint.tx_ctx_cnt = 1;
  endpoint.rx_ctx_cnt = 1;
}

void describe_domain(fi_domain_attr& domain, const fi_domain_attr* asked) {
  const bool provider_keys = asked && asked->mr_mode & FI_MR_PROV_KEY;
  domain.name = ::strdup(kDomain);
  domain.threading = FI_THREAD_SAFE;
  domain.control_progress = FI_PROGRESS_MANUAL;
  domain.data_progress = FI_PROGRESS_MANUAL;
  domain.resource_mgmt = FI_RM_ENABLED;
  domain.av_type = FI_AV_UNSPEC;
  domain.mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED | (provider_keys ? FI_MR_PROV_KEY : 0);
  domain.mr_key_size = provider_keys ? sizeof(std::uint64_t) : sizeof(std::uint32_t);
  domain.cq_data_size = 8;  // of messages, as cxi has it: its writes take none
  domain.cq_cnt = 32;
  domain.ep_cnt = 128;
  domain.tx_ctx_cnt = domain.rx_ctx_cnt = domain.max_ep_tx_ctx = domain.max_ep_rx_ctx = 1;
  domain.cntr_cnt = 2047;
  domain.mr_iov_limit = 1;
  domain.mr_cnt = 100;
  domain.caps = kNearAndFar;
  domain.tclass = asked ? asked->tclass : 0;
}

}  // namespace

int get_info(std::uint32_t, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
             fi_info** info) {
  if (const int bad = check_source(node, service, flags)) return bad;
  const std::optional<Settings> settings = settings_from_environment();
  if (!settings || (hints && !fits(*hints, *settings))) return -FI_ENODATA;
  if (!info_of_sockets()) return -FI_ENODATA;

  layer::Info given(fi_allocinfo());
  given->caps = granted_caps(hints);
  given->addr_format = FI_ADDR_CXI;
  given->fabric_attr->name = ::strdup(kProvider);
  describe_domain(*given->domain_attr, hints ? hints->domain_attr : nullptr);
  describe_data_path(*given, hints, *settings);
  *info = given.release();
  return 0;
}

layer::Info info_of_sockets() {
  layer::Info hints(fi_allocinfo());
  hints->caps = FI_RMA | FI_ATOMIC | FI_RMA_EVENT;
  hints->mode = ~std::uint64_t{0};
  hints->tx_attr->msg_order = FI_ORDER_WAW;
  hints->domain_attr->data_progress = FI_PROGRESS_AUTO;  // as a NIC does
  return layer::info_below("sockets", std::move(hints));
}

}  // namespace emucxi
