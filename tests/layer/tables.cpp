// SPDX-License-Identifier: Apache-2.0
#include "tests/layer/tables.hpp"

#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_tagged.h>

#include "tests/layer/object.hpp"

namespace layer {
namespace {

fi_ops_ep ep_ops = {.size = sizeof(fi_ops_ep),
                    .cancel = kAbsent,
                    .getopt = kAbsent,
                    .setopt = kAbsent,
                    .tx_ctx = kAbsent,
                    .rx_ctx = kAbsent,
                    .rx_size_left = kAbsent,
                    .tx_size_left = kAbsent};
fi_ops_msg msg_ops = {.size = sizeof(fi_ops_msg),
                      .recv = kAbsent,
                      .recvv = kAbsent,
                      .recvmsg = kAbsent,
                      .send = kAbsent,
                      .sendv = kAbsent,
                      .sendmsg = kAbsent,
                      .inject = kAbsent,
                      .senddata = kAbsent,
                      .injectdata = kAbsent};
fi_ops_tagged tagged_ops = {.size = sizeof(fi_ops_tagged),
                            .recv = kAbsent,
                            .recvv = kAbsent,
                            .recvmsg = kAbsent,
                            .send = kAbsent,
                            .sendv = kAbsent,
                            .sendmsg = kAbsent,
                            .inject = kAbsent,
                            .senddata = kAbsent,
                            .injectdata = kAbsent};
fi_ops_collective collective_ops = {.size = sizeof(fi_ops_collective),
                                    .barrier = kAbsent,
                                    .broadcast = kAbsent,
                                    .alltoall = kAbsent,
                                    .allreduce = kAbsent,
                                    .allgather = kAbsent,
                                    .reduce_scatter = kAbsent,
                                    .reduce = kAbsent,
                                    .scatter = kAbsent,
                                    .gather = kAbsent,
                                    .msg = kAbsent,
                                    .barrier2 = kAbsent};

}  // namespace

void lack_messages(fid_ep& endpoint) {
  endpoint.ops = &ep_ops;
  endpoint.msg = &msg_ops;
  endpoint.tagged = &tagged_ops;
  endpoint.collective = &collective_ops;
}

fi_ops_cm cm_with(int (*getname)(fid_t, void*, std::size_t*)) {
  return {.size = sizeof(fi_ops_cm),
          .setname = kAbsent,
          .getname = getname,
          .getpeer = kAbsent,
          .connect = kAbsent,
          .listen = kAbsent,
          .accept = kAbsent,
          .reject = kAbsent,
          .shutdown = kAbsent,
          .join = kAbsent};
}

}  // namespace layer
