// SPDX-License-Identifier: Apache-2.0
// Tables of the calls that libfabric's inline functions look up.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <type_traits>

namespace layer {

/// Converts to a function pointer of any type, to a function that reports that the provider has no such call.
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

/// A table whose calls are all absent.
template <class Table, class... Calls>
constexpr Table no_calls(Calls... absent) {
  if constexpr (requires { Table{sizeof(Table), absent..., kAbsent}; }) {
    return no_calls<Table>(absent..., kAbsent);
  } else {
    return {sizeof(Table), absent...};
  }
}

/// A table with the calls that `set` fills in; the others are absent.
template <class Table, class Set>
constexpr Table calls(Set set) {
  Table table = no_calls<Table>();
  set(table);
  return table;
}

/// An endpoint without messages, tagged messages, collectives, options and shared contexts: a backend that writes
/// remote memory needs none of them.
inline void lack_messages(fid_ep& endpoint) {
  static auto options = no_calls<fi_ops_ep>();
  static auto messages = no_calls<fi_ops_msg>();
  static auto tagged = no_calls<fi_ops_tagged>();
  static auto collectives = no_calls<fi_ops_collective>();
  endpoint.ops = &options;
  endpoint.msg = &messages;
  endpoint.tagged = &tagged;
  endpoint.collective = &collectives;
}

}  // namespace layer
