// SPDX-License-Identifier: Apache-2.0
// MPI Advance's functions: queues, matches, starts and waits.
#include <sluice/dialects/mpis.h>
#include <sluice/error.hpp>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dialects/advance/queue.hpp"
#include "dialects/common/outcome.hpp"
#include "rma/mpi/log.hpp"

namespace sluice::advance {
namespace {

using stream_mpi::argument;
using stream_mpi::guarded;
using stream_mpi::Job;
using stream_mpi::kInvalidState;
using stream_mpi::Refused;

std::span<MPIS_Request> list_of(int count, MPIS_Request* requests) {
  if (count < 0) throw Refused(MPI_ERR_COUNT, "a negative number of requests");
  if (count > 0) (void)argument(requests, "the list of requests");
  return {requests, static_cast<std::size_t>(count)};
}

Request& unmatched(MPIS_Request handle) {
  if (handle->of_match) throw Refused(kInvalidState, "a match of a match");
  return *handle->request;
}

MPI_Status* nth(MPI_Status* statuses, std::size_t i) {
  return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + i;
}

void complete_matches(std::span<MPIS_Request> requests, MPI_Status* statuses) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] == MPIS_REQUEST_NULL) continue;
    complete_match(*requests[i]->request);
    requests[i]->request->describe(nth(statuses, i));
  }
}

/// Begins all matches, so that peers may have another order, and then waits for each.
void match(const Queue& queue, std::span<MPIS_Request> requests, MPI_Status* statuses) {
  std::vector<Request*> all;
  for (MPIS_Request_struct* const handle : requests)
    if (handle != MPIS_REQUEST_NULL) all.push_back(&unmatched(handle));
  for (const Request* const request : all) request->check_match(queue);
  for (Request* const request : all) request->match_on(queue);
  try {
    complete_matches(requests, statuses);
  } catch (...) {
    for (Request* const request : all) request->permit_next_match(true);
    throw;
  }
  for (Request* const request : all) request->permit_next_match(false);
}

void wait(std::span<MPIS_Request> matches, MPI_Status* statuses) {
  for (MPIS_Request_struct* const handle : matches)
    if (handle != MPIS_REQUEST_NULL && !handle->of_match)
      throw Refused(kInvalidState, "a wait for a request that is not of a match");
  for (std::size_t i = 0; i < matches.size(); ++i) {
    if (matches[i] == MPIS_REQUEST_NULL) continue;
    complete_match(*matches[i]->request);
    matches[i]->request->describe(nth(statuses, i));
    delete std::exchange(matches[i], nullptr);
  }
}

void free_all(std::span<MPIS_Request> requests) {
  for (MPIS_Request& request : requests) {
    const std::unique_ptr<MPIS_Request_struct> handle(std::exchange(request, nullptr));
    if (handle == nullptr || handle->request == nullptr) continue;
    if (Queue* const queue = handle->request->started_on()) queue->keep(std::move(handle->request));
  }
}

std::shared_ptr<Queue> make_queue(MPIS_Queue_type type, void* stream) {
  if (type != THREAD && type != GPU_MEM_OPS && type != CXI) throw Refused(MPI_ERR_ARG, "a queue of an unknown type");
  const Context& context = Job::current()->context;
  auto* const variable = static_cast<void* const*>(stream);
  if (type != THREAD) (void)argument(variable, "the address of the stream");
  const bool own = variable == nullptr || (type == THREAD && *variable == nullptr);
  return std::make_shared<Queue>(own ? stream_mpi::make_host_line(context) : stream_mpi::make_line(context, variable));
}

}  // namespace
}  // namespace sluice::advance

using namespace sluice::advance;

const uintptr_t MPIS_QUEUE_NULL = 0;
MPIS_Request_struct* const MPIS_REQUEST_NULL = nullptr;

void MPIS_Hello_world() { sluice::mpi_rma::log(sluice::mpi_rma::Level::info, "MPIS by Sluice"); }

int MPIS_Queue_init(MPIS_Queue* queue, MPIS_Queue_type type, void* stream) {
  return guarded("MPIS_Queue_init", [&] { argument(queue, "the queue") = add_queue(make_queue(type, stream)); });
}

int MPIS_Queue_free(MPIS_Queue* queue) {
  int met = MPIS_SUCCESS;
  const int code = guarded("MPIS_Queue_free", [&] {
    met = take_queue(std::exchange(argument(queue, "the queue"), MPIS_QUEUE_NULL))->wait();
  });
  return code == MPIS_SUCCESS ? met : code;
}

int MPIS_Queue_wait(MPIS_Queue queue) {
  int met = MPIS_SUCCESS;
  const int code = guarded("MPIS_Queue_wait", [&] { met = queue_of(queue).wait(); });
  return code == MPIS_SUCCESS ? met : code;
}

int MPIS_Match(MPIS_Request* request, MPI_Status* status) {
  return guarded("MPIS_Match", [&] { match(*youngest_queue(), {&argument(request, "the request"), 1}, status); });
}

int MPIS_Queue_match(MPIS_Queue queue, MPIS_Request* request, MPI_Status* status) {
  return guarded("MPIS_Queue_match", [&] { match(queue_of(queue), {&argument(request, "the request"), 1}, status); });
}

int MPIS_Matchall(int count, MPIS_Request requests[], MPI_Status statuses[]) {
  return guarded("MPIS_Matchall", [&] { match(*youngest_queue(), list_of(count, requests), statuses); });
}

int MPIS_Imatch(MPIS_Request* request, MPIS_Request* match) {
  return guarded("MPIS_Imatch", [&] {
    MPIS_Request_struct* const handle = argument(request, "the request");
    auto made = std::make_unique<MPIS_Request_struct>();
    MPIS_Request& result = argument(match, "the request of the match");
    if (handle != MPIS_REQUEST_NULL) {
      const auto queue = youngest_queue();
      Request& its = unmatched(handle);
      if (its.matching()) throw Refused(kInvalidState, "a second match of a request");
      its.check_match(*queue);
      its.match_on(*queue);
      *made = {handle->request, true};
    }
    result = handle == MPIS_REQUEST_NULL ? nullptr : made.release();
  });
}

int MPIS_Is_matched(MPIS_Request* request, int* flag) {
  return guarded("MPIS_Is_matched", [&] {
    MPIS_Request_struct* const handle = argument(request, "the request");
    int& result = argument(flag, "the flag");
    if (handle == MPIS_REQUEST_NULL) throw Refused(kInvalidState, "a null request");
    result = handle->request->matched() || (handle->request->matching() && handle->request->advance()) ? 1 : 0;
  });
}

int MPIS_Wait(MPIS_Request* match, MPI_Status* status) {
  return guarded("MPIS_Wait", [&] { wait({&argument(match, "the request"), 1}, status); });
}

int MPIS_Waitall(int count, MPIS_Request matches[], MPI_Status statuses[]) {
  return guarded("MPIS_Waitall", [&] { wait(list_of(count, matches), statuses); });
}

int MPIS_Enqueue_start(MPIS_Queue queue, MPIS_Request* request) {
  return guarded("MPIS_Enqueue_start", [&] { queue_of(queue).start({&argument(request, "the request"), 1}); });
}

int MPIS_Enqueue_startall(MPIS_Queue queue, int count, MPIS_Request requests[]) {
  return guarded("MPIS_Enqueue_startall", [&] { queue_of(queue).start(list_of(count, requests)); });
}

int MPIS_Enqueue_waitall(MPIS_Queue queue) {
  return guarded("MPIS_Enqueue_waitall", [&] { queue_of(queue).wait_all(); });
}

int MPIS_Request_free(MPIS_Request* request) {
  return guarded("MPIS_Request_free", [&] { free_all({&argument(request, "the request"), 1}); });
}

int MPIS_Request_freeall(int count, MPIS_Request requests[]) {
  return guarded("MPIS_Request_freeall", [&] { free_all(list_of(count, requests)); });
}
