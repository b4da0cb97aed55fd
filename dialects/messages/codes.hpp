// SPDX-License-Identifier: Apache-2.0
// Codes of dialects whose functions return error classes of MPI.
#pragma once

#include "dialects/common/outcome.hpp"

#include <mpi.h>

#include <exception>

namespace sluice::stream_mpi {

constexpr int mpi_code(int code) noexcept {
  switch (code) {
    case kNotReady: return MPI_ERR_OTHER;
    case kInvalidState: return MPI_ERR_REQUEST;
    case kUnsupported: return MPI_ERR_UNSUPPORTED_OPERATION;
    default: return code;
  }
}

/// As `guarded`, with a class of MPI's.
template <class Work>
int returning(const char* where, Work work) noexcept {
  return mpi_code(guarded(where, work));
}

/// The class of a failure; MPI_SUCCESS for null.
int class_of(const std::exception_ptr& failure) noexcept;

}  // namespace sluice::stream_mpi
