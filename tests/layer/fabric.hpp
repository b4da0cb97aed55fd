// SPDX-License-Identifier: Apache-2.0
// A fabric and its domains, on top of those of another provider.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <mutex>

#include "tests/layer/info.hpp"
#include "tests/layer/object.hpp"

namespace layer {

using OpenDomain = decltype(fi_ops_fabric::domain);

class Fabric : public Object<fid_fabric> {
 public:
  Fabric(Info below, fid_fabric* wrapped, OpenDomain open_domain, void* context);
  ~Fabric();

  const Info inner_info;
  fid_fabric* const inner;

 private:
  fi_ops_fabric calls_;
};

/// fi_fabric on top of `below`; -FI_ENODATA if that is null.
int open_fabric(Info below, OpenDomain open_domain, fid_fabric** fabric, void* context);

/// Its lock guards everything in it.
class Domain : public Object<fid_domain> {
 public:
  virtual ~Domain();

  /// Every call of a program: `call` with the lock held, then `after_call`.
  template <class F>
  auto locked(F call) {
    const std::lock_guard lock(mutex_);
    const auto result = call();
    after_call();
    return result;
  }

  Fabric& fabric;
  fid_domain* const inner;

 protected:
  Domain(Fabric& owner, fid_domain* wrapped, const fid_domain& base);
  virtual void after_call() {}

  std::mutex mutex_;
};

}  // namespace layer
