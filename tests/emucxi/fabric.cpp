// SPDX-License-Identifier: Apache-2.0
#include "tests/emucxi/fabric.hpp"

#include "tests/emucxi/domain.hpp"
#include "tests/emucxi/info.hpp"
#include "tests/emucxi/queue.hpp"
#include "tests/layer/object.hpp"
#include "tests/layer/queue.hpp"

namespace emucxi {
namespace {

using layer::kAbsent;
using layer::object;

int close(fid* handle) {
  auto& fabric = object<Fabric>(handle);
  if (fabric.domains > 0) return -FI_EBUSY;
  delete &fabric;
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

int open_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  if (!attributes) return -FI_EINVAL;
  fi_info* const below = info_of_sockets();
  if (!below) return -FI_ENODATA;
  fid_fabric* inner = nullptr;
  if (const int bad = fi_fabric(below->fabric_attr, &inner, nullptr)) {
    fi_freeinfo(below);
    return bad;
  }
  *fabric = new Fabric(below, inner, context);
  return 0;
}

}  // namespace emucxi
