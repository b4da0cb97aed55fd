// SPDX-License-Identifier: Apache-2.0
#include "tests/layer/fabric.hpp"

#include "tests/layer/queue.hpp"
#include "tests/layer/tables.hpp"

namespace layer {
namespace {

fi_ops fabric_ops = calls<fi_ops>([](fi_ops& has) { has.close = close<Fabric>; });

}  // namespace

Fabric::Fabric(Info below, fid_fabric* wrapped, OpenDomain open_domain, void* context)
    : Object({{FI_CLASS_FABRIC, context, &fabric_ops}, &calls_, 0}), inner_info(std::move(below)), inner(wrapped),
      calls_(no_calls<fi_ops_fabric>()) {
  calls_.domain = open_domain;
  calls_.trywait = try_wait;
}

Fabric::~Fabric() { fi_close(&inner->fid); }

int open_fabric(Info below, OpenDomain open_domain, fid_fabric** fabric, void* context) {
  if (!below) return -FI_ENODATA;
  fid_fabric* inner = nullptr;
  if (const int bad = fi_fabric(below->fabric_attr, &inner, nullptr)) return bad;
  *fabric = new Fabric(std::move(below), inner, open_domain, context);
  return 0;
}

Domain::Domain(Fabric& owner, fid_domain* wrapped, const fid_domain& base)
    : Object(base), fabric(owner), inner(wrapped) {
  ++fabric.users;
}

Domain::~Domain() {
  fi_close(&inner->fid);
  --fabric.users;
}

}  // namespace layer
