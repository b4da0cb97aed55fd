// SPDX-License-Identifier: Apache-2.0
// The structure by which libfabric finds a provider.
#pragma once

#include <rdma/providers/fi_prov.h>

namespace layer {

inline fi_provider make_provider(const char* name, decltype(fi_provider::getinfo) getinfo,
                                 decltype(fi_provider::fabric) fabric) {
  fi_provider provider{};
  provider.version = FI_VERSION(1, 0);
  provider.fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
  provider.name = name;
  provider.getinfo = getinfo;
  provider.fabric = fabric;
  provider.cleanup = [] {};
  return provider;
}

}  // namespace layer
