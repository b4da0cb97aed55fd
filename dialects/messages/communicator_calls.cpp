// SPDX-License-Identifier: Apache-2.0
// MPI's functions that make communicators. MPI makes them, and each gets a number, by a broadcast.
#include <mpi.h>

#include "dialects/messages/communicators.hpp"
#include "rma/mpi/behind.hpp"

namespace {

int with_number(int result, const MPI_Comm* made) {
  if (result == MPI_SUCCESS) sluice::stream_mpi::number_communicator(*made);
  return result;
}

}  // namespace

#define SLUICE_NEXT(name) sluice::mpi_rma::behind(#name, &P##name)

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* newcomm) {
  return with_number(SLUICE_NEXT(MPI_Comm_dup)(comm, newcomm), newcomm);
}

int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm) {
  return with_number(SLUICE_NEXT(MPI_Comm_dup_with_info)(comm, info, newcomm), newcomm);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* newcomm) {
  return with_number(SLUICE_NEXT(MPI_Comm_split)(comm, color, key, newcomm), newcomm);
}

int MPI_Comm_split_type(MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm* newcomm) {
  return with_number(SLUICE_NEXT(MPI_Comm_split_type)(comm, split_type, key, info, newcomm), newcomm);
}

int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm* newcomm) {
  return with_number(SLUICE_NEXT(MPI_Comm_create)(comm, group, newcomm), newcomm);
}

int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* newcomm) {
  return with_number(SLUICE_NEXT(MPI_Comm_create_group)(comm, group, tag, newcomm), newcomm);
}

int MPI_Intercomm_merge(MPI_Comm intercomm, int high, MPI_Comm* newintracomm) {
  return with_number(SLUICE_NEXT(MPI_Intercomm_merge)(intercomm, high, newintracomm), newintracomm);
}

int MPI_Cart_create(MPI_Comm comm_old, int ndims, const int dims[], const int periods[], int reorder,
                    MPI_Comm* comm_cart) {
  return with_number(SLUICE_NEXT(MPI_Cart_create)(comm_old, ndims, dims, periods, reorder, comm_cart), comm_cart);
}

int MPI_Cart_sub(MPI_Comm comm, const int remain_dims[], MPI_Comm* newcomm) {
  return with_number(SLUICE_NEXT(MPI_Cart_sub)(comm, remain_dims, newcomm), newcomm);
}

int MPI_Graph_create(MPI_Comm comm_old, int nnodes, const int indx[], const int edges[], int reorder,
                     MPI_Comm* comm_graph) {
  return with_number(SLUICE_NEXT(MPI_Graph_create)(comm_old, nnodes, indx, edges, reorder, comm_graph), comm_graph);
}

int MPI_Dist_graph_create(MPI_Comm comm_old, int n, const int sources[], const int degrees[], const int destinations[],
                          const int weights[], MPI_Info info, int reorder, MPI_Comm* comm_dist_graph) {
  return with_number(SLUICE_NEXT(MPI_Dist_graph_create)(comm_old, n, sources, degrees, destinations, weights, info,
                                                        reorder, comm_dist_graph),
                     comm_dist_graph);
}

int MPI_Dist_graph_create_adjacent(MPI_Comm comm_old, int indegree, const int sources[], const int sourceweights[],
                                   int outdegree, const int destinations[], const int destweights[], MPI_Info info,
                                   int reorder, MPI_Comm* comm_dist_graph) {
  return with_number(
      SLUICE_NEXT(MPI_Dist_graph_create_adjacent)(comm_old, indegree, sources, sourceweights, outdegree, destinations,
                                                  destweights, info, reorder, comm_dist_graph),
      comm_dist_graph);
}
