// SPDX-License-Identifier: Apache-2.0
// A fabric: what is below it.
#pragma once

#include <rdma/fabric.h>

namespace chaos {

class Fabric : public fid_fabric {
 public:
  using Fid = fid_fabric;

  Fabric(fi_info* below, fid_fabric* wrapped, void* context);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  fi_info* const inner_info;
  fid_fabric* const inner;
};

int open_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context);

}  // namespace chaos
