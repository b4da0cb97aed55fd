/* SPDX-License-Identifier: Apache-2.0 */
/* A program in C that includes MPI Advance's header by its name: a token goes from rank to rank, and grows. */
#include <mpi.h>
#include <stdio.h>
#include <stream-triggering.h>

int main(int argc, char** argv) {
  int rank, size, out = 0, in = 0, step;
  MPIS_Queue queue = MPIS_QUEUE_NULL;
  MPIS_Request requests[2];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPIS_Queue_init(&queue, THREAD, NULL);
  MPIS_Send_init(&out, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
  MPIS_Recv_init(&in, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
  MPIS_Matchall(2, requests, MPI_STATUSES_IGNORE);
  for (step = 0; step < 3 * size; ++step) {
    MPIS_Enqueue_startall(queue, 2, requests);
    MPIS_Enqueue_waitall(queue);
    if (MPIS_Queue_wait(queue) != MPIS_SUCCESS) return 1;
    out = in + 1;
  }
  MPIS_Request_freeall(2, requests);
  MPIS_Queue_free(&queue);
  if (rank == 0 && out == 3 * size) printf("passed\n");
  MPI_Finalize();
  return out == 3 * size && queue == MPIS_QUEUE_NULL && requests[1] == MPIS_REQUEST_NULL ? 0 : 1;
}
