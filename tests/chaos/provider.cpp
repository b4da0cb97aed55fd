// SPDX-License-Identifier: Apache-2.0
// Where libfabric comes in.
#include <rdma/providers/fi_prov.h>

#include "tests/chaos/fabric.hpp"
#include "tests/chaos/info.hpp"

namespace {

fi_provider make_provider() {
  fi_provider provider{};
  provider.version = FI_VERSION(1, 0);
  provider.fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
  provider.name = chaos::kProvider;
  provider.getinfo = chaos::get_info;
  provider.fabric = chaos::open_fabric;
  provider.cleanup = [] {};
  return provider;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini() {
  static fi_provider provider = make_provider();
  return &provider;
}
