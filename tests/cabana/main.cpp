// SPDX-License-Identifier: Apache-2.0
// Each rank of MPI runs all tests; the launcher reports a rank that fails.
#include <gtest/gtest.h>

#include <mpi.h>
#include <Kokkos_Core.hpp>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  testing::InitGoogleTest(&argc, argv);
  Kokkos::initialize(argc, argv);
  const int failed = RUN_ALL_TESTS();
  Kokkos::finalize();
  MPI_Finalize();
  return failed;
}
