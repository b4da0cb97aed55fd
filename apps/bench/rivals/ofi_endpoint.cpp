// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/rivals/ofi_endpoint.hpp"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

namespace bench::ofi {
namespace {

constexpr std::uint32_t kInterface = FI_VERSION(1, 15);
constexpr std::size_t kMinCompletions = 1024;

void check_call(long status, const char* what) {
  if (status < 0) fail(what, -status);
}

// Returns the object that `open_it(&raw)` opens.
template <class Object, class Open>
Handle<Object> open(const char* what, Open open_it) {
  Object* raw = nullptr;
  check_call(open_it(&raw), what);
  return Handle<Object>(raw);
}

std::uint64_t accesses(OfiMode mode) {
  const std::uint64_t writes = FI_WRITE | FI_REMOTE_WRITE;
  return is_of_accesses(mode) ? writes | FI_READ | FI_REMOTE_READ : writes;
}

Info hints(const std::string& provider, OfiMode mode) {
  Info wanted(::fi_allocinfo());
  if (!wanted) throw std::bad_alloc();
  wanted->caps = FI_RMA | accesses(mode);
  if (is_of_accesses(mode)) wanted->caps |= FI_ATOMIC;
  wanted->ep_attr->type = FI_EP_RDM;
  wanted->fabric_attr->prov_name = ::strdup(provider.c_str());  // freed by fi_freeinfo
  wanted->domain_attr->threading = FI_THREAD_DOMAIN;
  wanted->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  wanted->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  wanted->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  if (mode == OfiMode::data) {
    wanted->domain_attr->cq_data_size = sizeof(std::uint32_t);  // for the number of a slot
  } else if (!is_of_accesses(mode)) {
    wanted->tx_attr->msg_order = FI_ORDER_WAW;
    wanted->rx_attr->msg_order = FI_ORDER_WAW;
  }
  return wanted;
}

Handle<fid_fabric> open_fabric(const fi_info& info) {
  return open<fid_fabric>("fi_fabric", [&](fid_fabric** to) { return ::fi_fabric(info.fabric_attr, to, nullptr); });
}

Handle<fid_domain> open_domain(fid_fabric& fabric, fi_info& info) {
  return open<fid_domain>("fi_domain", [&](fid_domain** to) { return ::fi_domain(&fabric, &info, to, nullptr); });
}

Handle<fid_cq> open_queue(fid_domain& domain, OfiMode mode, std::size_t completions) {
  fi_cq_attr queue{};
  queue.format = FI_CQ_FORMAT_DATA;
  queue.wait_obj = may_sleep(mode) ? FI_WAIT_FD : FI_WAIT_NONE;
  queue.size = std::max(kMinCompletions, completions);
  return open<fid_cq>("fi_cq_open", [&](fid_cq** to) { return ::fi_cq_open(&domain, &queue, to, nullptr); });
}

}  // namespace

void fail(const char* call, long error) {
  throw std::runtime_error(std::string("libfabric: ") + call + ": " + ::fi_strerror(static_cast<int>(error)));
}

Info find_provider(const std::string& provider, OfiMode mode) {
  for (const auto& name : {provider, provider + ";ofi_rxm"}) {
    fi_info* found = nullptr;
    if (::fi_getinfo(kInterface, nullptr, nullptr, 0, hints(name, mode).get(), &found) == 0) return Info(found);
  }
  return nullptr;
}

bool has_completion_queue(fi_info& info, OfiMode mode) {
  try {
    const auto fabric = open_fabric(info);
    const auto domain = open_domain(*fabric, info);
    open_queue(*domain, mode, 1);
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

Endpoint::Endpoint(const std::string& provider, OfiMode mode, std::size_t arrivals)
    : mode_(mode), info_(find_provider(provider, mode)) {
  if (!info_) fail("fi_getinfo", FI_ENODATA);
  fabric_ = open_fabric(*info_);
  domain_ = open_domain(*fabric_, *info_);
  completions_ = open_queue(*domain_, mode, arrivals);
  fi_av_attr table{};
  addresses_ =
      open<fid_av>("fi_av_open", [&](fid_av** to) { return ::fi_av_open(domain_.get(), &table, to, nullptr); });
  const bool each_completes = is_of_accesses(mode);
  info_->tx_attr->op_flags = each_completes ? FI_DELIVERY_COMPLETE : 0;
  endpoint_ =
      open<fid_ep>("fi_endpoint", [&](fid_ep** to) { return ::fi_endpoint(domain_.get(), info_.get(), to, nullptr); });
  // In the other modes a write requests no completion at its sender, because the source is never overwritten.
  const std::uint64_t selective = each_completes ? 0 : FI_SELECTIVE_COMPLETION;
  check_call(::fi_ep_bind(endpoint_.get(), &completions_->fid, FI_TRANSMIT | selective), "fi_ep_bind");
  // FI_RECV is bound without FI_SELECTIVE_COMPLETION: some providers apply it to remote data too and drop the data
  // (test: bench_ofi on sockets).
  check_call(::fi_ep_bind(endpoint_.get(), &completions_->fid, FI_RECV), "fi_ep_bind");
  check_call(::fi_ep_bind(endpoint_.get(), &addresses_->fid, 0), "fi_ep_bind");
  check_call(::fi_enable(endpoint_.get()), "fi_enable");
}

fi_addr_t Endpoint::reach(const RemoteMemory& theirs) const {
  fi_addr_t peer = FI_ADDR_UNSPEC;
  if (::fi_av_insert(addresses(), theirs.name.data(), 1, &peer, 0, nullptr) != 1)
    throw std::runtime_error("libfabric: the peer's address is of no use here");
  return peer;
}

void Endpoint::fail_completion(long status) const {
  fi_cq_err_entry error{};
  if (status == -FI_EAVAIL && ::fi_cq_readerr(completions(), &error, 0) > 0) status = -error.err;
  fail("a completion", -status);
}

Handle<fid_mr> Endpoint::register_memory(std::byte* memory, std::size_t bytes) const {
  constexpr std::uint64_t kKey = 1;  // the only key of its domain, unless the provider chooses keys
  auto region = open<fid_mr>("fi_mr_reg", [&](fid_mr** to) {
    return ::fi_mr_reg(domain_.get(), memory, bytes, accesses(mode_), 0, kKey, 0, to, nullptr);
  });
  if (requires_mode(FI_MR_ENDPOINT)) {
    check_call(::fi_mr_bind(region.get(), &endpoint_->fid, 0), "fi_mr_bind");
    check_call(::fi_mr_enable(region.get()), "fi_mr_enable");
  }
  return region;
}

RemoteMemory Endpoint::remote_memory(const Handle<fid_mr>& region, const std::byte* memory) const {
  RemoteMemory mine{};
  mine.name_bytes = mine.name.size();
  check_call(::fi_getname(&endpoint_->fid, mine.name.data(), &mine.name_bytes), "fi_getname");
  mine.base = requires_mode(FI_MR_VIRT_ADDR) ? reinterpret_cast<std::uintptr_t>(memory) : 0;
  mine.key = ::fi_mr_key(region.get());
  return mine;
}

// Links of all modes may be open at once.
Finish::Finish(const Workload& workload, OfiMode mode)
    : scope_(workload.context.scope("sluice-bench libfabric")), memory_(workload.context.allocate(2)),
      finished_(scope_.sender(workload.peer, static_cast<sluice::Tag>(mode), memory_.slice(0, 1))),
      peer_finished_(scope_.receiver(workload.peer, static_cast<sluice::Tag>(mode), memory_.slice(1, 1))) {
  finished_.wait_connected();
  peer_finished_.wait_connected();
}

}  // namespace bench::ofi
