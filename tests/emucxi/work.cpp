// SPDX-License-Identifier: Apache-2.0
#include "tests/emucxi/work.hpp"

#include <rdma/fi_errno.h>

#include "tests/emucxi/counter.hpp"
#include "tests/emucxi/cxi.hpp"
#include "tests/emucxi/domain.hpp"
#include "tests/emucxi/endpoint.hpp"
#include "tests/emucxi/settings.hpp"

namespace emucxi {
namespace {

constexpr std::uint64_t kWorkFlags =
    FI_MORE | FI_COMPLETION | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_TRANSMIT_COMPLETE | kWriteback;

bool one_word(const fi_ioc* parts, std::size_t count) {
  return count == 1 && parts && parts->addr && parts->count == 1;
}

/// The checks of every deferred data operation.
int check_deferred(const Domain& domain, Endpoint* endpoint, std::uint64_t flags, const fi_deferred_work& asked,
                   Work& work) {
  Transfer& transfer = *work.transfer;
  if (flags & ~kWorkFlags || !endpoint || &endpoint->domain != &domain) return -FI_EINVAL;
  if (!endpoint->enabled()) return -FI_EOPBADSTATE;
  if (endpoint->traffic_class() != domain.traffic_class) return -FI_EINVAL;
  if (!endpoint->knows(transfer.peer)) return -FI_EINVAL;
  transfer.endpoint = endpoint;
  transfer.kind = asked.op_type;
  transfer.flags = flags & ~static_cast<std::uint64_t>(FI_MORE);
  if (asked.completion_cntr) transfer.completion = static_cast<Counter*>(asked.completion_cntr);
  transfer.holds_request = transfer.local.iov_len != 0;
  if (transfer.kind == FI_OP_FETCH_ATOMIC && flags & FI_DELIVERY_COMPLETE) work.entries = 2;
  work.and_write_back = (flags & kWriteback) != 0;
  return 0;
}

int check_deferred_rma(const Domain& domain, const fi_deferred_work& asked, Work& work) {
  const fi_op_rma* const rma = asked.op.rma;
  if (!rma) return -FI_EINVAL;
  work.transfer = std::make_unique<Transfer>();
  if (const int bad = check_rma(domain.settings, rma->msg, *work.transfer)) return bad;
  return check_deferred(domain, static_cast<Endpoint*>(rma->ep), rma->flags, asked, work);
}

int check_deferred_atomic(const Domain& domain, const fi_deferred_work& asked, Work& work) {
  // The three structures begin with the endpoint and the message, and have their flags at different places.
  if (!asked.op.atomic) return -FI_EINVAL;
  const fi_msg_fetch* fetch = nullptr;
  const fi_msg_compare* compare = nullptr;
  std::uint64_t flags = asked.op.atomic->flags;
  if (asked.op_type == FI_OP_FETCH_ATOMIC) {
    fetch = &asked.op.fetch_atomic->fetch;
    flags = asked.op.fetch_atomic->flags;
  } else if (asked.op_type == FI_OP_COMPARE_ATOMIC) {
    fetch = &asked.op.compare_atomic->fetch;
    compare = &asked.op.compare_atomic->compare;
    flags = asked.op.compare_atomic->flags;
  }
  work.transfer = std::make_unique<Transfer>();
  if (const int bad = check_atomic(asked.op.atomic->msg, fetch, compare, *work.transfer)) return bad;
  return check_deferred(domain, static_cast<Endpoint*>(asked.op.atomic->ep), flags, asked, work);
}

int check_counter_change(const fi_deferred_work& asked, Work& work) {
  const fi_op_cntr* const change = asked.op.cntr;
  if (!change || !change->cntr || asked.completion_cntr || change->value > kSuccessMax) return -FI_EINVAL;
  work.action = asked.op_type == FI_OP_CNTR_SET ? Work::Action::set : Work::Action::add;
  work.counter = static_cast<Counter*>(change->cntr);
  work.value = change->value;
  return 0;
}

}  // namespace

int check_rma(const Settings& settings, const fi_msg_rma& message, Transfer& transfer) {
  if (!message.msg_iov || message.iov_count > 1 || !message.rma_iov || message.rma_iov_count != 1) return -FI_EINVAL;
  if (message.iov_count) transfer.local = message.msg_iov[0];
  if (transfer.local.iov_len && !transfer.local.iov_base) return -FI_EINVAL;
  if (transfer.local.iov_len > settings.message) return -FI_EMSGSIZE;
  transfer.remote = {message.rma_iov[0].addr, transfer.local.iov_len, message.rma_iov[0].key};
  transfer.peer = message.addr;
  transfer.context = message.context;
  return 0;
}

int check_atomic(const fi_msg_atomic& message, const fi_msg_fetch* fetch, const fi_msg_compare* compare,
                 Transfer& transfer) {
  if (!one_word(message.msg_iov, message.iov_count)) return -FI_EINVAL;
  if (!message.rma_iov || message.rma_iov_count != 1 || message.rma_iov->count != 1) return -FI_EINVAL;
  if (fetch && !one_word(fetch->msg_iov, fetch->iov_count)) return -FI_EINVAL;
  if (compare && !one_word(compare->msg_iov, compare->iov_count)) return -FI_EINVAL;
  if (message.datatype != FI_UINT64 && message.datatype != FI_INT64) return -FI_EOPNOTSUPP;
  transfer.local = {message.msg_iov->addr, sizeof(std::uint64_t)};
  transfer.remote = {message.rma_iov->addr, sizeof(std::uint64_t), message.rma_iov->key};
  transfer.datatype = message.datatype;
  transfer.operation = message.op;
  if (fetch) transfer.fetched = fetch->msg_iov[0];
  if (compare) transfer.compared = compare->msg_iov[0];
  transfer.peer = message.addr;
  transfer.context = message.context;
  return 0;
}

int check_work(Domain& domain, const fi_deferred_work& asked, Work& work) {
  if (!asked.triggering_cntr) return -FI_EINVAL;
  work.trigger = static_cast<Counter*>(asked.triggering_cntr);
  work.threshold = asked.threshold;
  switch (asked.op_type) {
    case FI_OP_READ:
    case FI_OP_WRITE: return check_deferred_rma(domain, asked, work);
    case FI_OP_ATOMIC:
    case FI_OP_FETCH_ATOMIC:
    case FI_OP_COMPARE_ATOMIC: return check_deferred_atomic(domain, asked, work);
    case FI_OP_CNTR_SET:
    case FI_OP_CNTR_ADD: return check_counter_change(asked, work);
    case FI_OP_RECV:
    case FI_OP_TRECV: return asked.threshold ? -FI_EINVAL : -FI_ENOSYS;
    case FI_OP_SEND: return asked.op.msg->flags & FI_INJECT ? -FI_EINVAL : -FI_ENOSYS;
    case FI_OP_TSEND: return asked.op.tagged->flags & FI_INJECT ? -FI_EINVAL : -FI_ENOSYS;
  }
  return -FI_EINVAL;
}

}  // namespace emucxi
