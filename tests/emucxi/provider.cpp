// SPDX-License-Identifier: Apache-2.0
#include "tests/layer/provider.hpp"
#include "tests/emucxi/cxi.hpp"
#include "tests/emucxi/fabric.hpp"
#include "tests/emucxi/info.hpp"

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini() {
  static fi_provider provider = layer::make_provider(emucxi::kProvider, emucxi::get_info, emucxi::open_fabric);
  return &provider;
}
