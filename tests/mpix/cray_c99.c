/* SPDX-License-Identifier: Apache-2.0 */
/* A program in C that names the communicator in each call, and then in none: a token goes from rank to rank. */
#include <sluice/dialects/cray.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank, size, out = 0, in = -1, step;
  sluice_host_stream* stream = NULL;
  MPIX_Queue queues[2];
  MPI_Comm same;
  MPI_Request requests[4];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_dup(MPI_COMM_WORLD, &same);
  if (sluice_host_stream_create(NULL, &stream) != SLUICE_OK) return 1;
  if (MPIX_Create_queue(same, (void*)stream, &queues[0]) != MPI_SUCCESS) return 1;
  if (MPIX_Create_queue((void*)stream, &queues[1]) != MPI_SUCCESS) return 1;
  for (step = 0; step < 3 * size; ++step) {
    MPIX_Enqueue_send(&out, 1, MPI_INT, (rank + 1) % size, 0, same, queues[0], &requests[0]);
    MPIX_Enqueue_recv(&in, 1, MPI_INT, (rank + size - 1) % size, 0, same, queues[0], &requests[1]);
    MPIX_Enqueue_start(queues[0]);
    MPIX_Enqueue_wait(queues[0]);
    sluice_host_stream_synchronize(stream, SLUICE_FOREVER);
    out = in + 1;
    MPIX_Enqueue_send(&out, 1, MPI_INT, (rank + 1) % size, 0, queues[1], &requests[2]);
    MPIX_Enqueue_recv(&in, 1, MPI_INT, (rank + size - 1) % size, 0, queues[1], &requests[3]);
    MPIX_Enqueue_start(queues[1]);
    MPIX_Enqueue_wait(queues[1]);
    sluice_host_stream_synchronize(stream, SLUICE_FOREVER);
    out = in + 1;
  }
  if (MPIX_Free_queue(queues[0]) != MPI_SUCCESS || MPIX_Free_queue(queues[1]) != MPI_SUCCESS) return 1;
  sluice_host_stream_free(&stream);
  MPI_Comm_free(&same);
  if (rank == 0 && out == 6 * size) printf("passed\n");
  MPI_Finalize();
  return out == 6 * size ? 0 : 1;
}
