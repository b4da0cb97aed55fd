// SPDX-License-Identifier: Apache-2.0
// Where libfabric comes in.
#include <rdma/providers/fi_prov.h>

#include "tests/emucxi/cxi.hpp"
#include "tests/emucxi/fabric.hpp"
#include "tests/emucxi/info.hpp"

namespace {

fi_provider make_provider() {
  fi_provider provider{};
  provider.version = FI_VERSION(1, 0);
  provider.fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
  provider.name = emucxi::kProvider;
  provider.getinfo = emucxi::get_info;
  provider.fabric = emucxi::open_fabric;
  provider.cleanup = [] {};
  return provider;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini() {
  static fi_provider provider = make_provider();
  return &provider;
}
