// SPDX-License-Identifier: Apache-2.0
// A program of MPI that knows nothing of Sluice.
#include "tests/mpi_rma/programs.hpp"

int main(int argc, char** argv) { return run_programs(argc, argv, 1); }
