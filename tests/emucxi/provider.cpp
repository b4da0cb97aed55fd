// SPDX-License-Identifier: Apache-2.0
#include "tests/layer/provider.hpp"
#include "tests/emucxi/cxi.hpp"
#include "tests/emucxi/domain.hpp"
#include "tests/emucxi/info.hpp"

namespace {

int open_fabric(fi_fabric_attr*, fid_fabric** fabric, void* context) {
  return layer::open_fabric(emucxi::info_of_sockets(), emucxi::open_domain, fabric, context);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini() {
  static fi_provider provider = layer::make_provider(emucxi::kProvider, emucxi::get_info, open_fabric);
  return &provider;
}
