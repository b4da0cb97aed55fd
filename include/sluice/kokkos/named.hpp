// SPDX-License-Identifier: Apache-2.0
// Channels on a scope of a name that the program has given.
#pragma once

#include <sluice/error.hpp>

#include <string>

namespace sluice::kokkos::detail {

/// What `open` opens. Where it is refused as misuse there is most likely another of that name already.
template <class Open>
auto open_named(const std::string& kind, const std::string& name, Open open) {
  try {
    return open();
  } catch (const Error& reason) {
    if (reason.code() != Code::misuse) throw;
    throw Error(Code::misuse, reason.rank(), reason.peer(), reason.tag(), 0,
                "the " + kind + " '" + name +
                    "' cannot open its channels; those that are open at once have names of their own (" +
                    reason.what() + ")");
  }
}

}  // namespace sluice::kokkos::detail
