// SPDX-License-Identifier: Apache-2.0
// The calls on an endpoint, as libfabric's inline functions find them.
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "tests/chaos/domain.hpp"
#include "tests/chaos/endpoint.hpp"
#include "tests/chaos/queue.hpp"
#include "tests/layer/message.hpp"
#include "tests/layer/tables.hpp"

namespace chaos {
namespace {

constexpr std::uint64_t kFlags = FI_COMPLETION | FI_REMOTE_CQ_DATA | FI_INJECT | FI_INJECT_COMPLETE |
                                 FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MORE;

ssize_t writemsg(fid_ep* handle, const fi_msg_rma* message, std::uint64_t flags) {
  auto& endpoint = *static_cast<Endpoint*>(handle);
  Write write;
  if (const int bad = check_write(endpoint.domain.settings, *message, flags, write)) return bad;
  return endpoint.domain.locked([&] { return endpoint.post(std::move(write)); });
}

ssize_t inject(fid_ep* handle, const void* buffer, std::size_t bytes, std::uint64_t data, std::uint64_t data_flag,
               fi_addr_t peer, std::uint64_t address, std::uint64_t key) {
  const iovec local = {const_cast<void*>(buffer), bytes};
  const fi_rma_iov remote = {address, bytes, key};
  const fi_msg_rma message = layer::message(local, remote, peer, nullptr, data);
  return writemsg(handle, &message, FI_INJECT | data_flag);
}

ssize_t inject_write(fid_ep* handle, const void* buffer, std::size_t bytes, fi_addr_t peer, std::uint64_t address,
                     std::uint64_t key) {
  return inject(handle, buffer, bytes, 0, 0, peer, address, key);
}

ssize_t inject_writedata(fid_ep* handle, const void* buffer, std::size_t bytes, std::uint64_t data, fi_addr_t peer,
                         std::uint64_t address, std::uint64_t key) {
  return inject(handle, buffer, bytes, data, FI_REMOTE_CQ_DATA, peer, address, key);
}

int bind(fid* handle, fid* other, std::uint64_t flags) {
  return layer::locked<Endpoint>(handle, [&](Endpoint& endpoint) {
    if (other->fclass == FI_CLASS_CQ) {
      endpoint.bind(layer::object<Queue>(other), flags);
    } else {
      endpoint.bind(*other, flags);
    }
    return 0;
  });
}

int getname(fid_t handle, void* address, std::size_t* bytes) {
  return fi_getname(&layer::object<Endpoint>(handle).inner->fid, address, bytes);
}

fi_ops endpoint_fid_ops = layer::calls<fi_ops>([](fi_ops& has) {
  has.close = layer::close_part<Endpoint>;
  has.bind = bind;
  has.control = layer::enable<Endpoint>;
});
fi_ops_cm cm_ops = layer::calls<fi_ops_cm>([](fi_ops_cm& has) { has.getname = getname; });
fi_ops_rma rma_ops = layer::calls<fi_ops_rma>([](fi_ops_rma& has) {
  has.writemsg = writemsg;
  has.inject = inject_write;
  has.injectdata = inject_writedata;
});

}  // namespace

int check_write(const Settings& settings, const fi_msg_rma& message, std::uint64_t flags, Write& write) {
  if (flags & ~kFlags) return -FI_EBADFLAGS;
  if (message.iov_count != 1 || message.rma_iov_count != 1) return -FI_EINVAL;
  const iovec& local = *message.msg_iov;
  if (local.iov_len != message.rma_iov->len) return -FI_EINVAL;
  if (flags & FI_INJECT && local.iov_len > settings.inject) return -FI_EMSGSIZE;
  if (flags & FI_REMOTE_CQ_DATA && settings.data_bytes == 0) return -FI_ENOSYS;
  if (settings.data_bytes < sizeof message.data && message.data >> (8 * settings.data_bytes)) return -FI_EINVAL;
  write.peer = message.addr;
  write.source = static_cast<const std::byte*>(local.iov_base);
  write.bytes = local.iov_len;
  write.target = *message.rma_iov;
  write.data = message.data;
  write.flags = flags;
  write.context = message.context;
  return 0;
}

void set_endpoint_ops(Endpoint& endpoint) {
  endpoint.fid.ops = &endpoint_fid_ops;
  endpoint.cm = &cm_ops;
  endpoint.rma = &rma_ops;
  layer::lack_messages(endpoint);
}

}  // namespace chaos
