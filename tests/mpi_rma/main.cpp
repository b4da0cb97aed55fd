// SPDX-License-Identifier: Apache-2.0
// A program that uses MPI alone.
#include "tests/mpi_rma/programs.hpp"

int main(int argc, char** argv) { return run_programs(argc, argv, 1); }
