// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

namespace sluice::mpi_rma {

class Job;

/// The job ends at the beginning of MPI_Finalize, with the windows that the program has not freed.
void end_with_finalize(std::shared_ptr<Job> job);
/// The jobs of this rank that have not ended.
std::vector<std::shared_ptr<Job>> living_jobs();
/// True once MPI_Finalize has begun.
bool finalizing();

}  // namespace sluice::mpi_rma
