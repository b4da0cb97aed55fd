// SPDX-License-Identifier: Apache-2.0
// Streams of MPICH's dialect, and the communicators that have one.
#pragma once

#include "dialects/common/line.hpp"

#include <sluice/dialects/mpich.h>

#include <memory>

namespace sluice::mpich {

/// Alive while its handle or a communicator has it.
struct StreamObject {
  void* stream = nullptr;                  ///< read by the line
  std::unique_ptr<stream_mpi::Line> line;  ///< null: nothing can be enqueued
  MPIX_Stream handle = MPIX_STREAM_NULL;
};

/// Any thread.
MPIX_Stream add_stream(std::shared_ptr<StreamObject> stream);
/// @throws Refused{MPI_ERR_ARG}
std::shared_ptr<StreamObject> take_stream(MPIX_Stream handle);
/// Null for MPIX_STREAM_NULL. @throws Refused{MPI_ERR_ARG}
std::shared_ptr<StreamObject> find_stream(MPIX_Stream handle);
/// True until `take_stream`.
bool is_alive(MPIX_Stream handle);

/// Duplicates of the communicator have the stream, too.
void attach(MPI_Comm comm, std::shared_ptr<StreamObject> stream);
/// Null without one.
std::shared_ptr<StreamObject> stream_of(MPI_Comm comm);
/// @throws Refused{MPI_ERR_COMM} for a communicator on which nothing can be enqueued
std::shared_ptr<StreamObject> enqueuing(MPI_Comm comm);

}  // namespace sluice::mpich
