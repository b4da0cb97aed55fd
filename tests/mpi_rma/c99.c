/* SPDX-License-Identifier: Apache-2.0 */
/* The header in C99. Rank 0 notifies the last rank, which waits. */
#include <sluice/mpi_rma.h>

#include <stdio.h>

int main(int argc, char** argv) {
  MPI_Win window;
  MPI_Count count = 0;
  int *memory = NULL, rank = 0, ranks = 0, value = 7, failed = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  MPI_Win_set_num_notify(window, MPI_INFO_NULL, rank == ranks - 1 ? 1 : 0);
  MPI_Win_lock_all(0, window);
  if (rank == 0) MPI_Put_notify(&value, 1, MPI_INT, ranks - 1, 0, 1, MPI_INT, 0, window);
  if (rank == ranks - 1) {
    SLUICE_Win_wait_notify_enqueue(window, 0, 1, sluice_stream_program_order());
    MPI_Win_reset_notify_value(window, 0, &count);
    failed = count != 1 || *memory != 7;
    printf(failed ? "failed\n" : "passed\n");
  }
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
  MPI_Finalize();
  return failed;
}
