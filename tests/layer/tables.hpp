// SPDX-License-Identifier: Apache-2.0
// Calls of an endpoint that a provider lacks: what a backend that writes remote memory does not need.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include <cstddef>

namespace layer {

/// No messages, tagged or not, no collectives, no options, no shared contexts.
void lack_messages(fid_ep& endpoint);

/// Its name only.
fi_ops_cm cm_with(int (*getname)(fid_t, void*, std::size_t*));

}  // namespace layer
