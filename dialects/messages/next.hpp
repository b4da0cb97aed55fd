// SPDX-License-Identifier: Apache-2.0
// Definitions behind this library: a tool's, or MPI's.
#pragma once

#include <dlfcn.h>

namespace sluice::stream_mpi {

/// `otherwise` if no library behind this one has the function.
template <class Function>
Function* next_definition(const char* name, Function* otherwise) {
  void* const found = dlsym(RTLD_NEXT, name);
  return found == nullptr ? otherwise : reinterpret_cast<Function*>(found);
}

}  // namespace sluice::stream_mpi
