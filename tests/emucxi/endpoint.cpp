// SPDX-License-Identifier: Apache-2.0
#include "tests/emucxi/endpoint.hpp"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>

#include "tests/emucxi/addresses.hpp"
#include "tests/emucxi/counter.hpp"
#include "tests/emucxi/domain.hpp"
#include "tests/emucxi/info.hpp"
#include "tests/emucxi/queue.hpp"
#include "tests/layer/message.hpp"

namespace emucxi {

Endpoint::Endpoint(Domain& owner, const fi_info& info, void* context)
    : Part({.fid = {FI_CLASS_EP, context, nullptr}}, owner), caps_(info.caps), traffic_class_(domain.traffic_class),
      default_flags_(info.tx_attr ? info.tx_attr->op_flags : 0), tx_size_(domain.settings.tx_size) {
  domain.endpoints.push_back(this);
  set_endpoint_ops(*this);
  if (info.tx_attr && info.tx_attr->tclass != FI_TC_UNSPEC) traffic_class_ = info.tx_attr->tclass;
  if (info.tx_attr && info.tx_attr->size) tx_size_ = std::min(tx_size_, info.tx_attr->size);
}

Endpoint::~Endpoint() {
  domain.forget(*this);
  // The network first: it may still write into transfers in flight.
  if (inner_) fi_close(&inner_->fid);
  if (inner_queue_) fi_close(&inner_queue_->fid);
  for (Queue* const queue : {transmit_queue_, receive_queue_}) {
    if (!queue) continue;
    queue->forget(*this);
    --queue->users;
  }
  for (Counter* const counter : {writes_, reads_}) {
    if (counter) --counter->users;
  }
  if (addresses_) --addresses_->users;
}

// --- setting up ------------------------------------------------------------------------------------------------------

int Endpoint::bind(Queue& queue, std::uint64_t flags) {
  if (enabled_) return -FI_EOPBADSTATE;
  if (&queue.domain != &domain || flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION)) return -FI_EINVAL;
  if ((flags & FI_TRANSMIT && transmit_queue_) || (flags & FI_RECV && receive_queue_)) return -FI_EINVAL;
  if (flags & FI_TRANSMIT) {
    transmit_queue_ = &queue;
    ++queue.users;
    if (!(flags & FI_SELECTIVE_COMPLETION)) default_flags_ |= FI_COMPLETION;
  }
  if (flags & FI_RECV) {
    receive_queue_ = &queue;
    ++queue.users;
  }
  return 0;
}

int Endpoint::bind(Counter& counter, std::uint64_t flags) {
  if (enabled_) return -FI_EOPBADSTATE;
  if (&counter.domain != &domain) return -FI_EINVAL;
  if ((flags & FI_WRITE && writes_) || (flags & FI_READ && reads_)) return -FI_EINVAL;
  // A counter for the writes of peers is ignored without an error, as on cxi: regions count these.
  for (auto [flag, bound] : {std::pair{FI_WRITE, &writes_}, std::pair{FI_READ, &reads_}}) {
    if (!(flags & flag)) continue;
    *bound = &counter;
    ++counter.users;
  }
  return 0;
}

int Endpoint::bind(Addresses& addresses) {
  if (enabled_) return -FI_EOPBADSTATE;
  if (addresses_ || &addresses.domain != &domain) return -FI_EINVAL;
  addresses_ = &addresses;
  ++addresses.users;
  return 0;
}

int Endpoint::enable() {
  if (enabled_) return 0;
  if (!addresses_) return -FI_ENOAV;
  if (!transmit_queue_) return -FI_ENOCQ;
  const int bad = open_inner();
  enabled_ = bad == 0;
  return bad;
}

int Endpoint::open_inner() {
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_CONTEXT;
  attributes.size = std::max<std::size_t>(1024, 2 * tx_size_);
  if (const int bad = fi_cq_open(domain.inner, &attributes, &inner_queue_, nullptr)) return bad;
  if (const int bad = fi_endpoint(domain.inner, domain.fabric.inner_info.get(), &inner_, nullptr)) return bad;
  if (const int bad = fi_ep_bind(inner_, &inner_queue_->fid, FI_TRANSMIT | FI_RECV)) return bad;
  if (const int bad = fi_ep_bind(inner_, &addresses_->inner->fid, 0)) return bad;
  return fi_enable(inner_);
}

bool Endpoint::knows(fi_addr_t peer) const {
  std::array<std::byte, 64> ignored;
  std::size_t bytes = ignored.size();
  return addresses_ && fi_av_lookup(addresses_->inner, peer, ignored.data(), &bytes) == 0;
}

// --- data ------------------------------------------------------------------------------------------------------------

bool Endpoint::take_request() {
  if (requests_ >= tx_size_) return false;
  ++requests_;
  return true;
}

ssize_t Endpoint::begin(std::unique_ptr<Transfer> transfer, std::uint64_t flags) {
  if (!enabled_) return -FI_EOPBADSTATE;
  if (!knows(transfer->peer)) return -FI_EINVAL;
  if (flags & FI_INJECT && transfer->local.iov_len > kInjectSize) return -FI_EMSGSIZE;
  if (!domain.network_free() || !take_request()) return -FI_EAGAIN;
  transfer->endpoint = this;
  transfer->flags = flags;
  transfer->holds_request = true;
  transfer->completion = transfer->kind == FI_OP_READ || transfer->fetched.addr ? reads_ : writes_;
  if (flags & FI_INJECT) {
    const auto* const bytes = static_cast<const std::byte*>(transfer->local.iov_base);
    transfer->injected.assign(bytes, bytes + transfer->local.iov_len);
    transfer->local.iov_base = transfer->injected.data();
  }
  domain.begin(std::move(transfer));
  return 0;
}

ssize_t Endpoint::send(std::unique_ptr<Transfer>& transfer) {
  const ssize_t bad = transfer->atomic() ? send_atomic(*transfer) : send_rma(*transfer);
  if (bad) return bad;
  void* const key = transfer.get();
  in_flight_.emplace(key, std::move(transfer));
  return 0;
}

// Delivery, because cxi counts an operation when the target has acknowledged it.
constexpr std::uint64_t kInnerFlags = FI_COMPLETION | FI_DELIVERY_COMPLETE;

ssize_t Endpoint::send_rma(Transfer& transfer) const {
  const fi_msg_rma message = layer::message(transfer.local, transfer.remote, transfer.peer, &transfer);
  if (transfer.kind == FI_OP_READ) return fi_readmsg(inner_, &message, FI_COMPLETION);
  return fi_writemsg(inner_, &message, kInnerFlags);
}

ssize_t Endpoint::send_atomic(Transfer& transfer) const {
  const fi_ioc operand = {transfer.local.iov_base, 1};
  const fi_rma_ioc target = {transfer.remote.addr, 1, transfer.remote.key};
  fi_msg_atomic message{};
  message.msg_iov = &operand;
  message.iov_count = 1;
  message.addr = transfer.peer;
  message.rma_iov = &target;
  message.rma_iov_count = 1;
  message.datatype = transfer.datatype;
  message.op = transfer.operation;
  message.context = &transfer;
  switch (transfer.kind) {
    case FI_OP_FETCH_ATOMIC: return fi_fetch_atomicmsg(inner_, &message, &transfer.fetched, nullptr, 1, kInnerFlags);
    case FI_OP_COMPARE_ATOMIC:
      return fi_compare_atomicmsg(inner_, &message, &transfer.compared, nullptr, 1, &transfer.fetched, nullptr, 1,
                                  kInnerFlags);
    default: return fi_atomicmsg(inner_, &message, kInnerFlags);
  }
}

bool Endpoint::poll() {
  if (!enabled_) return false;
  std::array<fi_cq_entry, 16> entries;
  const ssize_t count = fi_cq_read(inner_queue_, entries.data(), entries.size());
  for (ssize_t i = 0; i < count; ++i) complete(entries[static_cast<std::size_t>(i)].op_context, 0);
  if (count != -FI_EAVAIL) return count > 0;
  fi_cq_err_entry failed{};
  if (fi_cq_readerr(inner_queue_, &failed, 0) == 1) complete(failed.op_context, failed.err ? failed.err : FI_EIO);
  return true;
}

void Endpoint::complete(void* context, int error) {
  const auto found = in_flight_.find(context);
  if (found == in_flight_.end()) return;
  std::unique_ptr<Transfer> transfer = std::move(found->second);
  in_flight_.erase(found);
  domain.finish(std::move(transfer), error);
}

void Endpoint::forget(const Counter& counter) {
  for (const auto& [key, transfer] : in_flight_) {
    if (transfer->completion == &counter) transfer->completion = nullptr;
  }
}

}  // namespace emucxi
