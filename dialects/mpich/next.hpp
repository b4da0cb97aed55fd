// SPDX-License-Identifier: Apache-2.0
// Forwards calls on communicators and requests of an MPI that has these functions itself.
#pragma once

#include <sluice/dialects/mpich.h>

#include "rma/mpi/behind.hpp"

namespace sluice::mpich {

/// MPI's own function, or null.
#define SLUICE_OF_MPI(name)                                                         \
  [] {                                                                              \
    static auto* const found = sluice::mpi_rma::find_behind<decltype(name)>(#name); \
    return found;                                                                   \
  }()

/// Returns what MPI's function of the same name returns, if there is one.
#define SLUICE_LEAVE_TO_MPI(name, ...) \
  if (auto* const next = SLUICE_OF_MPI(name); next != nullptr) return next(__VA_ARGS__)

}  // namespace sluice::mpich
