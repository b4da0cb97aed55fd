// SPDX-License-Identifier: Apache-2.0
#include "tests/layer/provider.hpp"
#include "tests/chaos/fabric.hpp"
#include "tests/chaos/info.hpp"

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini() {
  static fi_provider provider = layer::make_provider(chaos::kProvider, chaos::get_info, chaos::open_fabric);
  return &provider;
}
