// SPDX-License-Identifier: Apache-2.0
// How our classes are the objects that libfabric's inline calls expect, and what is in their tables for calls we lack.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <type_traits>

namespace layer {

/// Our object behind an fid. Each class derives from the fid structure it names `Fid`, whose first member is the fid.
template <class T>
T& object(fid* handle) {
  return *static_cast<T*>(reinterpret_cast<typename T::Fid*>(handle));
}

/// Converts to any call of an operations table, to one that answers that there is no such call.
struct Absent {
  template <class R, class... A>
  using Call = R (*)(A...);

  template <class R, class... A>
  constexpr operator Call<R, A...>() const {  // NOLINT(google-explicit-constructor): that is its purpose
    return [](A...) -> R {
      if constexpr (std::is_pointer_v<R>) {
        return nullptr;
      } else if constexpr (std::is_unsigned_v<R>) {
        return 0;
      } else {
        return -FI_ENOSYS;
      }
    };
  }
};
inline constexpr Absent kAbsent;

}  // namespace layer
