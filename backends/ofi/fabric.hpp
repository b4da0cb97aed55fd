// SPDX-License-Identifier: Apache-2.0
// libfabric as this backend meets it: loaded when first needed, its objects owned, its errors thrown.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <memory>
#include <string>

namespace sluice::backends::ofi {

/// The functions that libfabric exports. It is not linked: loading it takes 0.2 s where it looks for hardware, and
/// programs that stay on one host do not need it.
struct Library {
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
  decltype(&::fi_version) version = nullptr;
  std::string why_not;  ///< not empty: it cannot be loaded
};

/// Loads it at the first call. Any thread.
const Library& library();

struct FreeInfo {
  void operator()(fi_info* info) const noexcept { library().freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

/// Null: an empty one.
Info duplicate(const fi_info* info);

/// @throws std::runtime_error for a negative code of libfabric.
void check(long code, const char* what);

/// The text of an error, for people.
std::string text_of(long code);

struct Close {
  template <class Object>
  void operator()(Object* object) const noexcept {
    fi_close(&object->fid);
  }
};
template <class Object>
using Owned = std::unique_ptr<Object, Close>;

/// The object that a function of libfabric makes. @throws std::runtime_error
template <class Object, class Open, class... Arguments>
Owned<Object> opened(const char* name, Open open, Arguments... arguments) {
  Object* object = nullptr;
  check(open(arguments..., &object, nullptr), name);
  return Owned<Object>(object);
}

/// Empty where libfabric has none.
inline std::string text(const char* or_null) { return or_null == nullptr ? std::string() : or_null; }

}  // namespace sluice::backends::ofi
