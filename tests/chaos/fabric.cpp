// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/fabric.hpp"

#include "tests/chaos/domain.hpp"
#include "tests/chaos/info.hpp"
#include "tests/layer/object.hpp"
#include "tests/layer/queue.hpp"

namespace chaos {
namespace {

using layer::kAbsent;

int close(fid* handle) {
  delete &layer::object<Fabric>(handle);
  return 0;
}

fi_ops fid_ops = {.size = sizeof(fi_ops),
                  .close = close,
                  .bind = kAbsent,
                  .control = kAbsent,
                  .ops_open = kAbsent,
                  .tostr = kAbsent,
                  .ops_set = kAbsent};
fi_ops_fabric calls = {.size = sizeof(fi_ops_fabric),
                       .domain = open_domain,
                       .passive_ep = kAbsent,
                       .eq_open = kAbsent,
                       .wait_open = kAbsent,
                       .trywait = layer::try_wait,
                       .domain2 = kAbsent};

}  // namespace

Fabric::Fabric(fi_info* below, fid_fabric* wrapped, void* context)
    : fid_fabric{{FI_CLASS_FABRIC, context, &fid_ops}, &calls, 0}, inner_info(below), inner(wrapped) {}

Fabric::~Fabric() {
  fi_close(&inner->fid);
  fi_freeinfo(inner_info);
}

int open_fabric(fi_fabric_attr*, fid_fabric** fabric, void* context) {
  fi_info* const below = info_below();
  if (!below) return -FI_ENODATA;
  fid_fabric* inner = nullptr;
  if (const int bad = fi_fabric(below->fabric_attr, &inner, nullptr)) {
    fi_freeinfo(below);
    return bad;
  }
  *fabric = new Fabric(below, inner, context);
  return 0;
}

}  // namespace chaos
