// SPDX-License-Identifier: Apache-2.0
#include "tests/layer/info.hpp"

#include <rdma/fi_endpoint.h>

#include <cstring>

namespace layer {

Info info_below(const char* provider, Info hints) {
  hints->ep_attr->type = FI_EP_RDM;
  hints->fabric_attr->prov_name = ::strdup(provider);
  fi_info* found = nullptr;
  if (fi_getinfo(FI_VERSION(1, 15), "127.0.0.1", nullptr, FI_SOURCE, hints.get(), &found)) return nullptr;
  fi_freeinfo(found->next);
  found->next = nullptr;
  return Info(found);
}

}  // namespace layer
