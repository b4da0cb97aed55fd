// SPDX-License-Identifier: Apache-2.0
// MPI Advance's functions: requests, memory, and the beginning of MPI.
#include <sluice/dialects/mpis.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "dialects/advance/queue.hpp"
#include "dialects/common/collectives.hpp"
#include "dialects/common/info.hpp"
#include "dialects/common/outcome.hpp"
#include "rma/mpi/behind.hpp"

namespace sluice::advance {
namespace {

using mpi_rma::behind;
using stream_mpi::argument;
using stream_mpi::check_rank_and_tag;
using stream_mpi::Envelope;
using stream_mpi::guarded;
using stream_mpi::Job;
using stream_mpi::kUnsupported;
using stream_mpi::Layout;
using stream_mpi::Refused;

void check(const Envelope& envelope) {
  if (envelope.comm == MPI_COMM_NULL) throw Refused(MPI_ERR_COMM, "a null communicator");
  if (envelope.peer == MPI_ANY_SOURCE || envelope.tag == MPI_ANY_TAG)
    throw Refused(kUnsupported, "MPI_ANY_SOURCE or MPI_ANY_TAG");
  int inter = 0;
  PMPI_Comm_test_inter(envelope.comm, &inter);
  if (inter != 0) throw Refused(kUnsupported, "an intercommunicator");
  check_rank_and_tag(envelope);
  if (envelope.peer != MPI_PROC_NULL) (void)Job::rank_of(envelope.comm, envelope.peer);
}

MPIS_Request handle_of(std::shared_ptr<Request> request) {
  return std::make_unique<MPIS_Request_struct>(MPIS_Request_struct{std::move(request)}).release();
}

void make(const Envelope& envelope, Request::Kind kind, const void* buffer, MPI_Count count, MPI_Datatype type,
          MPIS_Request* request) {
  MPIS_Request& result = argument(request, "the request");
  std::shared_ptr<Job> job = Job::current();
  if (count < 0) throw Refused(MPI_ERR_COUNT, "a negative count");
  if (type == MPI_DATATYPE_NULL) throw Refused(MPI_ERR_TYPE, "a null datatype");
  check(envelope);
  const bool nobody = envelope.peer == MPI_PROC_NULL;
  result = handle_of(
      std::make_shared<Request>(std::move(job), envelope, kind, nobody ? Layout() : Layout(buffer, count, type)));
}

void check_comm(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL) throw Refused(MPI_ERR_COMM, "a null communicator");
}

Space space_of(MPI_Info info) {
  const std::string kind = stream_mpi::value_of(info, "mpi_memory_alloc_kinds").value_or("");
  constexpr std::array<std::string_view, 4> kOfGpus{"cuda:device", "rocm:device", "rocm:device:fine",
                                                    "rocm:device:coarse"};
  if (std::ranges::count(kOfGpus, kind) > 0) return Space::device;
  if (kind == "system") return Space::host;
  throw Refused(kUnsupported, "no known kind of memory in mpi_memory_alloc_kinds: '" + kind + "'");
}

int with_job(int result) {
  if (result == MPI_SUCCESS) Job::make(end_queues);
  return result;
}

}  // namespace
}  // namespace sluice::advance

using namespace sluice::advance;

// Here all ranks meet, which a context of theirs needs: the dialect's own functions are called by some of them.
int MPI_Init(int* argc, char*** argv) { return with_job(behind("MPI_Init", &PMPI_Init)(argc, argv)); }

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  return with_job(behind("MPI_Init_thread", &PMPI_Init_thread)(argc, argv, required, provided));
}

int MPIS_Send_init(const void* buffer, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                   MPI_Info /*info*/, MPIS_Request* request) {
  return guarded("MPIS_Send_init", [&] {
    make({comm, dest, tag}, Request::Kind::send, buffer, count, datatype, request);
  });
}

int MPIS_Rsend_init(const void* buffer, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                    MPI_Info /*info*/, MPIS_Request* request) {
  return guarded("MPIS_Rsend_init", [&] {
    make({comm, dest, tag}, Request::Kind::send, buffer, count, datatype, request);
  });
}

int MPIS_Recv_init(void* buffer, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                   MPI_Info /*info*/, MPIS_Request* request) {
  return guarded("MPIS_Recv_init", [&] {
    make({comm, source, tag}, Request::Kind::receive, buffer, count, datatype, request);
  });
}

int MPIS_Barrier_init(MPI_Comm comm, MPI_Info /*info*/, MPIS_Request* request) {
  return guarded("MPIS_Barrier_init", [&] {
    MPIS_Request& result = argument(request, "the request");
    check_comm(comm);
    result = handle_of(std::make_shared<Request>(sluice::stream_mpi::pair_barrier(Job::current(), comm)));
  });
}

int MPIS_Allreduce_init(const void* send_buffer, void* receive_buffer, int count, MPI_Datatype datatype, MPI_Op op,
                        MPI_Comm comm, MPI_Info /*info*/, MPIS_Request* request) {
  return guarded("MPIS_Allreduce_init", [&] {
    MPIS_Request& result = argument(request, "the request");
    check_comm(comm);
    if (count < 0) throw Refused(MPI_ERR_COUNT, "a negative count");
    if (datatype == MPI_DATATYPE_NULL) throw Refused(MPI_ERR_TYPE, "a null datatype");
    if (op == MPI_OP_NULL) throw Refused(MPI_ERR_OP, "a null operation");
    result = handle_of(std::make_shared<Request>(
        sluice::stream_mpi::pair_allreduce(Job::current(), comm, {send_buffer, receive_buffer, count, datatype, op})));
  });
}

int MPIS_Alloc_mem(MPI_Aint bytes, MPI_Info info, void** memory) {
  return guarded("MPIS_Alloc_mem", [&] {
    if (memory == nullptr || bytes < 0) throw Refused(MPI_ERR_ARG, "no place for the address, or a negative size");
    const auto size = std::max<MPI_Aint>(bytes, 1);
    const sluice::Space space = space_of(info);
    *memory = Job::current()->allocate(static_cast<std::size_t>(size), space);
  });
}

int MPIS_Free_mem(void* memory) {
  return guarded("MPIS_Free_mem", [&] {
    if (memory != nullptr && !Job::current()->free(static_cast<std::byte*>(memory)))
      throw Refused(MPI_ERR_ARG, "memory that MPIS_Alloc_mem has not made");
  });
}
