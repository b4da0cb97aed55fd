// SPDX-License-Identifier: Apache-2.0
// MPICH's functions: messages and allreduces on the stream of a communicator.
#include <sluice/dialects/mpich.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dialects/messages/codes.hpp"
#include "dialects/messages/make.hpp"
#include "dialects/messages/on_line.hpp"
#include "dialects/messages/requests.hpp"
#include "dialects/mpich/allreduce.hpp"
#include "dialects/mpich/next.hpp"
#include "dialects/mpich/streams.hpp"

namespace sluice::mpich {
namespace {

using stream_mpi::argument;
using stream_mpi::Arguments;
using stream_mpi::Awaited;
using stream_mpi::Direction;
using stream_mpi::Refused;
using stream_mpi::returning;
using stream_mpi::Transfer;

bool is_for_mpi(MPI_Comm comm) { return comm != MPI_COMM_NULL && stream_of(comm) == nullptr; }

bool is_of_mpi(MPI_Request request) { return request != MPI_REQUEST_NULL && !stream_mpi::owner_of(request); }

std::shared_ptr<Transfer> start(const Arguments& arguments, Direction direction) {
  const auto stream = enqueuing(arguments.comm);
  stream->line->check();
  auto message = stream_mpi::make_transfer(arguments, direction);
  message->owner = stream;
  if (stream->line->gpu()) message->look_for_gpu_memory();
  Transfer::add(message);
  stream_mpi::enqueue_start(*stream->line, {message});
  return message;
}

void start_and_wait(const Arguments& arguments, Direction direction, MPI_Status* status) {
  const auto stream = enqueuing(arguments.comm);
  stream_mpi::enqueue_wait(*stream->line, {{start(arguments, direction), status}});
}

void wait(std::span<const MPI_Request> requests, MPI_Status* statuses) {
  std::shared_ptr<StreamObject> stream;
  for (const MPI_Request request : requests) {
    if (request == MPI_REQUEST_NULL) continue;
    const auto owner = stream_mpi::owner_of(request);
    if (!owner) throw Refused(MPI_ERR_REQUEST, "a request that is not of MPIX_Isend_enqueue or MPIX_Irecv_enqueue");
    const auto its = std::static_pointer_cast<StreamObject>(owner->lock());
    if (its == nullptr) throw Refused(MPI_ERR_REQUEST, "a request whose stream and communicators were freed");
    if (stream != nullptr && its != stream) throw Refused(MPI_ERR_REQUEST, "requests of several streams");
    if (std::ranges::count(requests, request) > 1) throw Refused(MPI_ERR_REQUEST, "one request twice");
    stream = its;
  }
  if (stream == nullptr) return;
  stream->line->check();
  std::vector<Awaited> messages;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    MPI_Status* const status = statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + i;
    messages.push_back({stream_mpi::take_request(requests[i]), status});
  }
  stream_mpi::enqueue_wait(*stream->line, std::move(messages));
}

}  // namespace
}  // namespace sluice::mpich

using namespace sluice::mpich;

int MPIX_Send_enqueue(const void* buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm) {
  if (is_for_mpi(comm)) SLUICE_LEAVE_TO_MPI(MPIX_Send_enqueue, buf, count, datatype, dest, tag, comm);
  return returning("MPIX_Send_enqueue", [&] {
    start_and_wait({buf, count, datatype, dest, tag, comm}, Direction::send, MPI_STATUS_IGNORE);
  });
}

int MPIX_Recv_enqueue(void* buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                      MPI_Status* status) {
  if (is_for_mpi(comm)) SLUICE_LEAVE_TO_MPI(MPIX_Recv_enqueue, buf, count, datatype, source, tag, comm, status);
  return returning("MPIX_Recv_enqueue", [&] {
    start_and_wait({buf, count, datatype, source, tag, comm}, Direction::receive, status);
  });
}

int MPIX_Isend_enqueue(const void* buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                       MPI_Request* request) {
  if (is_for_mpi(comm)) SLUICE_LEAVE_TO_MPI(MPIX_Isend_enqueue, buf, count, datatype, dest, tag, comm, request);
  return returning("MPIX_Isend_enqueue", [&] {
    MPI_Request& result = argument(request, "the request");
    result = sluice::stream_mpi::make_request(start({buf, count, datatype, dest, tag, comm}, Direction::send));
  });
}

int MPIX_Irecv_enqueue(void* buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                       MPI_Request* request) {
  if (is_for_mpi(comm)) SLUICE_LEAVE_TO_MPI(MPIX_Irecv_enqueue, buf, count, datatype, source, tag, comm, request);
  return returning("MPIX_Irecv_enqueue", [&] {
    MPI_Request& result = argument(request, "the request");
    result = sluice::stream_mpi::make_request(start({buf, count, datatype, source, tag, comm}, Direction::receive));
  });
}

int MPIX_Wait_enqueue(MPI_Request* request, MPI_Status* status) {
  if (request != nullptr && is_of_mpi(*request)) SLUICE_LEAVE_TO_MPI(MPIX_Wait_enqueue, request, status);
  return returning("MPIX_Wait_enqueue", [&] {
    const MPI_Request one = argument(request, "the request");
    if (one == MPI_REQUEST_NULL) throw Refused(MPI_ERR_REQUEST, "a null request");
    wait({&one, 1}, status);
  });
}

int MPIX_Waitall_enqueue(int count, MPI_Request array_of_requests[], MPI_Status* array_of_statuses) {
  if (count > 0 && array_of_requests != nullptr &&
      std::ranges::any_of(std::span(array_of_requests, static_cast<std::size_t>(count)), is_of_mpi))
    SLUICE_LEAVE_TO_MPI(MPIX_Waitall_enqueue, count, array_of_requests, array_of_statuses);
  return returning("MPIX_Waitall_enqueue", [&] {
    if (count < 0) throw Refused(MPI_ERR_COUNT, "a negative number of requests");
    if (count == 0) return;
    const std::span all(&argument(array_of_requests, "the list of requests"), static_cast<std::size_t>(count));
    if (array_of_statuses == nullptr && MPI_STATUSES_IGNORE != nullptr)
      throw Refused(MPI_ERR_ARG, "the list of statuses is a null pointer");
    wait(all, array_of_statuses);
    std::ranges::fill(all, MPI_REQUEST_NULL);
  });
}

int MPIX_Allreduce_enqueue(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                           MPI_Comm comm) {
  if (is_for_mpi(comm)) SLUICE_LEAVE_TO_MPI(MPIX_Allreduce_enqueue, sendbuf, recvbuf, count, datatype, op, comm);
  return returning("MPIX_Allreduce_enqueue", [&] {
    const auto stream = enqueuing(comm);
    enqueue_allreduce(*stream->line, comm, {sendbuf, recvbuf, count, datatype, op});
  });
}
