// SPDX-License-Identifier: Apache-2.0
#include "tests/layer/provider.hpp"
#include "tests/chaos/domain.hpp"
#include "tests/chaos/info.hpp"

namespace {

int open_fabric(fi_fabric_attr*, fid_fabric** fabric, void* context) {
  return layer::open_fabric(chaos::info_below(), chaos::open_domain, fabric, context);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini() {
  static fi_provider provider = layer::make_provider(chaos::kProvider, chaos::get_info, open_fabric);
  return &provider;
}
