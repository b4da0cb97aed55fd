/* SPDX-License-Identifier: Apache-2.0 */
/* A program in C in MPICH's words: a token goes from rank to rank. */
#include <sluice/dialects/mpich.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank, size, out = 0, in = -1, sum = 0, step;
  sluice_host_stream* host = NULL;
  MPIX_Stream stream;
  MPI_Comm comm;
  MPI_Info info;
  MPI_Request requests[2];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (sluice_host_stream_create(NULL, &host) != SLUICE_OK) return 1;
  MPI_Info_create(&info);
  MPI_Info_set(info, "type", "sluice_host_stream*");
  MPIX_Info_set_hex(info, "value", (const void*)&host, sizeof(sluice_host_stream*));
  if (MPIX_Stream_create(info, &stream) != MPI_SUCCESS) return 1;
  MPI_Info_free(&info);
  if (MPIX_Stream_comm_create(MPI_COMM_WORLD, stream, &comm) != MPI_SUCCESS) return 1;
  for (step = 0; step < 3 * size; ++step) {
    MPIX_Isend_enqueue(&out, 1, MPI_INT, (rank + 1) % size, 0, comm, &requests[0]);
    MPIX_Irecv_enqueue(&in, 1, MPI_INT, (rank + size - 1) % size, 0, comm, &requests[1]);
    MPIX_Waitall_enqueue(2, requests, MPI_STATUSES_IGNORE);
    MPIX_Allreduce_enqueue(&in, &sum, 1, MPI_INT, MPI_SUM, comm);
    sluice_host_stream_synchronize(host, SLUICE_FOREVER);
    if (sum != size * step) return 1;
    out = in + 1;
  }
  MPI_Comm_free(&comm);
  if (MPIX_Stream_free(&stream) != MPI_SUCCESS || stream != MPIX_STREAM_NULL) return 1;
  sluice_host_stream_free(&host);
  if (rank == 0 && out == 3 * size) printf("passed\n");
  MPI_Finalize();
  return out == 3 * size ? 0 : 1;
}
