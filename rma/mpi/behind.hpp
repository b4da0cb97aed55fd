// SPDX-License-Identifier: Apache-2.0
// The definitions of functions behind those that this library puts before them.
#pragma once

#include <dlfcn.h>

namespace sluice::mpi_rma {

/// The next definition of `name` behind this library. Null if there is none.
/// `library`: where to look then. A library that another one has loaded for itself alone calls the first definition
/// that all see, which is ours, though its own is not among those that follow.
template <class Function>
Function* find_behind(const char* name, const char* library = nullptr) noexcept {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr && library != nullptr) {
    void* const loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (loaded == nullptr) return nullptr;
    found = dlsym(loaded, name);
    dlclose(loaded);  // takes back the count of this dlopen; the library stays
  }
  return reinterpret_cast<Function*>(found);
}

/// The definition of `name` behind this library: a tool's that wraps the same calls, or MPI's own.
template <class Function>
Function* behind(const char* name, Function* mpis_own) {
  Function* const found = find_behind<Function>(name);
  return found == nullptr ? mpis_own : found;
}

}  // namespace sluice::mpi_rma
