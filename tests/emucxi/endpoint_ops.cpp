// SPDX-License-Identifier: Apache-2.0
// The calls on an endpoint, as libfabric's inline functions find them.
#include <rdma/fi_cm.h>

#include <memory>

#include "tests/emucxi/addresses.hpp"
#include "tests/emucxi/counter.hpp"
#include "tests/emucxi/domain.hpp"
#include "tests/emucxi/endpoint.hpp"
#include "tests/emucxi/queue.hpp"
#include "tests/layer/message.hpp"
#include "tests/layer/tables.hpp"

namespace emucxi {
namespace {

using layer::object;

Endpoint& endpoint_of(fid_ep* handle) { return *static_cast<Endpoint*>(handle); }
Domain& domain_of(fid_ep* handle) { return endpoint_of(handle).domain; }

constexpr std::uint64_t kMessageFlags =
    FI_COMPLETION | FI_MORE | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;

/// Begins the transfer that `check` accepts and fills in.
template <class Check>
ssize_t begin(fid_ep* handle, fi_op_type kind, std::uint64_t flags, std::uint64_t allowed, Check check) {
  if (flags & ~allowed) return -FI_EBADFLAGS;
  auto transfer = std::make_unique<Transfer>();
  transfer->kind = kind;
  if (const int bad = check(*transfer)) return bad;
  Endpoint& endpoint = endpoint_of(handle);
  return endpoint.domain.locked([&] { return endpoint.begin(std::move(transfer), flags); });
}

// --- remote memory ---------------------------------------------------------------------------------------------------

ssize_t rma(fid_ep* handle, fi_op_type kind, const fi_msg_rma& message, std::uint64_t flags, std::uint64_t allowed) {
  return begin(handle, kind, flags, allowed,
               [&](Transfer& transfer) { return check_rma(domain_of(handle).settings, message, transfer); });
}

ssize_t rma(fid_ep* handle, fi_op_type kind, const void* buffer, std::size_t bytes, fi_addr_t peer,
            std::uint64_t offset, std::uint64_t key, void* context, std::uint64_t flags) {
  const iovec local = {const_cast<void*>(buffer), bytes};
  const fi_rma_iov remote = {offset, bytes, key};
  return rma(handle, kind, layer::message(local, remote, peer, context), flags, ~std::uint64_t{0});
}

ssize_t read(fid_ep* handle, void* buffer, std::size_t bytes, void*, fi_addr_t peer, std::uint64_t offset,
             std::uint64_t key, void* context) {
  return rma(handle, FI_OP_READ, buffer, bytes, peer, offset, key, context, endpoint_of(handle).default_flags());
}

ssize_t readmsg(fid_ep* handle, const fi_msg_rma* message, std::uint64_t flags) {
  return rma(handle, FI_OP_READ, *message, flags, kMessageFlags);
}

ssize_t write(fid_ep* handle, const void* buffer, std::size_t bytes, void*, fi_addr_t peer, std::uint64_t offset,
              std::uint64_t key, void* context) {
  return rma(handle, FI_OP_WRITE, buffer, bytes, peer, offset, key, context, endpoint_of(handle).default_flags());
}

ssize_t writemsg(fid_ep* handle, const fi_msg_rma* message, std::uint64_t flags) {
  return rma(handle, FI_OP_WRITE, *message, flags, kMessageFlags | FI_INJECT);
}

ssize_t inject(fid_ep* handle, const void* buffer, std::size_t bytes, fi_addr_t peer, std::uint64_t offset,
               std::uint64_t key) {
  return rma(handle, FI_OP_WRITE, buffer, bytes, peer, offset, key, nullptr, FI_INJECT);
}

fi_ops_rma rma_ops = layer::calls<fi_ops_rma>([](fi_ops_rma& has) {
  has.read = read;
  has.readmsg = readmsg;
  has.write = write;
  has.writemsg = writemsg;
  has.inject = inject;
});

// --- atomics ---------------------------------------------------------------------------------------------------------

ssize_t atomic(fid_ep* handle, fi_op_type kind, const fi_msg_atomic& message, const fi_msg_fetch* fetch,
               const fi_msg_compare* compare, std::uint64_t flags) {
  return begin(handle, kind, flags, kMessageFlags | FI_INJECT,
               [&](Transfer& transfer) { return check_atomic(message, fetch, compare, transfer); });
}

ssize_t atomicmsg(fid_ep* handle, const fi_msg_atomic* message, std::uint64_t flags) {
  return atomic(handle, FI_OP_ATOMIC, *message, nullptr, nullptr, flags);
}

ssize_t fetch_atomicmsg(fid_ep* handle, const fi_msg_atomic* message, fi_ioc* results, void**, std::size_t count,
                        std::uint64_t flags) {
  const fi_msg_fetch fetch = {results, nullptr, count};
  return atomic(handle, FI_OP_FETCH_ATOMIC, *message, &fetch, nullptr, flags);
}

ssize_t compare_atomicmsg(fid_ep* handle, const fi_msg_atomic* message, const fi_ioc* compared, void**,
                          std::size_t compared_count, fi_ioc* results, void**, std::size_t count, std::uint64_t flags) {
  const fi_msg_fetch fetch = {results, nullptr, count};
  const fi_msg_compare compare = {compared, nullptr, compared_count};
  return atomic(handle, FI_OP_COMPARE_ATOMIC, *message, &fetch, &compare, flags);
}

fi_ops_atomic atomic_ops = layer::calls<fi_ops_atomic>([](fi_ops_atomic& has) {
  has.writemsg = atomicmsg;
  has.readwritemsg = fetch_atomicmsg;
  has.compwritemsg = compare_atomicmsg;
});

// --- set-up ----------------------------------------------------------------------------------------------------------

int bind_endpoint(fid* handle, fid* other, std::uint64_t flags) {
  return layer::locked<Endpoint>(handle, [&](Endpoint& endpoint) {
    switch (other->fclass) {
      case FI_CLASS_CQ: return endpoint.bind(object<Queue>(other), flags);
      case FI_CLASS_CNTR: return endpoint.bind(object<Counter>(other), flags);
      case FI_CLASS_AV: return endpoint.bind(object<Addresses>(other));
      default: return -FI_EINVAL;
    }
  });
}

int getname(fid_t handle, void* address, std::size_t* bytes) {
  auto& endpoint = object<Endpoint>(handle);
  if (!endpoint.enabled()) return -FI_EOPBADSTATE;
  return packed_name(endpoint.inner(), address, bytes);
}

fi_ops endpoint_fid_ops = layer::calls<fi_ops>([](fi_ops& has) {
  has.close = layer::close_part<Endpoint>;
  has.bind = bind_endpoint;
  has.control = layer::enable<Endpoint>;
});
fi_ops_cm cm_ops = layer::calls<fi_ops_cm>([](fi_ops_cm& has) { has.getname = getname; });

}  // namespace

void set_endpoint_ops(Endpoint& endpoint) {
  endpoint.fid.ops = &endpoint_fid_ops;
  endpoint.cm = &cm_ops;
  endpoint.rma = &rma_ops;
  endpoint.atomic = &atomic_ops;
  layer::lack_messages(endpoint);
}

}  // namespace emucxi
