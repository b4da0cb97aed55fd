// SPDX-License-Identifier: Apache-2.0
#include "dialects/messages/requests.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "dialects/messages/at_end.hpp"
#include "dialects/messages/codes.hpp"
#include "dialects/messages/lane.hpp"
#include "rma/rest.hpp"

namespace sluice::stream_mpi {
namespace {

struct Requested;
/// The state that MPI keeps with a request.
using State = std::shared_ptr<Requested>;
using States = std::list<State>;

struct Requested {
  std::shared_ptr<Transfer> message;
  MPI_Request handle = MPI_REQUEST_NULL;
  std::atomic<bool> completed = false;  // MPI knows
  std::atomic<bool> asked_for = false;  // by the program, which frees it
  bool listed = false;                  // with the mutex; the thread that takes it off the list frees the request
  States::iterator place;
};

/// MPI may hold its lock when it calls back, and then this mutex is taken: no call of MPI while it is held.
struct Requests {
  std::mutex mutex;
  States all;  // by age
  std::size_t look_at = 0;
};

Requests& requests() {
  static Requests& made = *new Requests;
  return made;
}

void complete(Requested& one) {
  if (!one.completed.exchange(true)) PMPI_Grequest_complete(one.handle);
}

/// With the mutex.
void unlist(Requested& one) {
  if (std::exchange(one.listed, false)) requests().all.erase(one.place);
}

extern "C" {

int sluice_stream_mpi_query(void* state, MPI_Status* status) {
  const Requested& one = **static_cast<State*>(state);
  one.message->describe(status);
  try {
    one.message->check();
  } catch (...) {
    status->MPI_ERROR = class_of(std::current_exception());
    return status->MPI_ERROR;
  }
  return MPI_SUCCESS;
}

int sluice_stream_mpi_free(void* state) {
  const std::unique_ptr<State> held(static_cast<State*>(state));
  const std::lock_guard lock(requests().mutex);
  unlist(**held);
  return MPI_SUCCESS;
}

int sluice_stream_mpi_cancel(void*, int) { return MPI_SUCCESS; }

#ifdef MPICH_NUMVERSION
/// In a thread of the program that waits, which helps to move the bytes.
int sluice_stream_mpi_poll(void* state, MPI_Status*) {
  Requested& one = **static_cast<State*>(state);
  one.asked_for = true;
  if (!one.message->complete()) progress_lanes();
  if (one.message->complete()) complete(one);
  return MPI_SUCCESS;
}

/// MPI calls it again until the requests are complete. It returns now and then, so that other threads get MPI's lock.
int sluice_stream_mpi_wait(int count, void** states, double, MPI_Status*) {
  constexpr auto kYields = std::chrono::milliseconds(1);
  constexpr auto kNap = std::chrono::microseconds(50);
  const auto all_complete = [&] {
    bool all = true;
    for (int i = 0; i < count; ++i) {
      (void)sluice_stream_mpi_poll(states[i], MPI_STATUS_IGNORE);
      all = all && (*static_cast<State*>(states[i]))->completed;
    }
    return all;
  };
  for (rma::Rest rest(0); !all_complete();) {
    if (rest.spin_or_yield(kYields)) continue;
    std::this_thread::sleep_for(kNap);
    break;
  }
  return MPI_SUCCESS;
}
#endif

}  // extern "C"

/// MPI calls back for the request, and so no lock is held.
void free_in_mpi(Requested& one) {
  complete(one);
  MPI_Request handle = one.handle;
  PMPI_Request_free(&handle);
}

/// With the mutex. The thread that takes a request off the list frees it.
States take_if(States& all, auto condition) {
  States taken;
  for (auto one = all.begin(); one != all.end();) {
    const auto next = std::next(one);
    if (condition(**one)) {
      (*one)->listed = false;
      taken.splice(taken.end(), all, one);
    }
    one = next;
  }
  return taken;
}

void free_all_requests() {
  States freed;
  {
    const std::lock_guard lock(requests().mutex);
    freed = take_if(requests().all, [](const Requested& one) { return one.message->complete(); });
  }
  for (const State& one : freed) free_in_mpi(*one);
}

}  // namespace

MPI_Request make_request(std::shared_ptr<Transfer> message) {
  static const bool freed_at_end = (at_end(Phase::requests, free_all_requests), true);
  static_cast<void>(freed_at_end);
  auto one = std::make_shared<Requested>();
  one->message = std::move(message);
  auto held = std::make_unique<State>(one);
#ifdef MPICH_NUMVERSION
  const int code = MPIX_Grequest_start(&sluice_stream_mpi_query, &sluice_stream_mpi_free, &sluice_stream_mpi_cancel,
                                       &sluice_stream_mpi_poll, &sluice_stream_mpi_wait, held.get(), &one->handle);
#else
  const int code = PMPI_Grequest_start(&sluice_stream_mpi_query, &sluice_stream_mpi_free, &sluice_stream_mpi_cancel,
                                       held.get(), &one->handle);
#endif
  if (code != MPI_SUCCESS) throw Refused(code, "MPI makes no request");
  static_cast<void>(held.release());  // the function that frees the request deletes it
  const MPI_Request handle = one->handle;
  const std::lock_guard lock(requests().mutex);
  auto& all = requests().all;
  one->listed = true;
  one->place = all.insert(all.end(), one);
  return handle;
}

std::optional<std::weak_ptr<void>> owner_of(MPI_Request request) {
  const std::lock_guard lock(requests().mutex);
  for (const State& one : requests().all)
    if (one->handle == request) return one->message->owner;
  return std::nullopt;
}

std::shared_ptr<Transfer> take_request(MPI_Request request) {
  State taken;
  {
    const std::lock_guard lock(requests().mutex);
    const auto& all = requests().all;
    const auto found = std::ranges::find(all, request, [](const State& one) { return one->handle; });
    if (found != all.end()) {
      taken = *found;
      unlist(*taken);
    }
  }
  if (taken == nullptr)
    throw Refused(MPI_ERR_REQUEST, "a request that MPIX_Isend_enqueue or MPIX_Irecv_enqueue has not made");
  free_in_mpi(*taken);
  return taken->message;
}

void free_requests(std::size_t most) {
  const auto may_be_dropped = [](const Requested& one) { return !one.asked_for && one.message->complete(); };
  States freed;
  {
    const std::lock_guard lock(requests().mutex);
    auto& all = requests().all;
    if (all.size() <= std::max(most, requests().look_at)) return;
    const auto is_one = [&](const State& one) { return may_be_dropped(*one); };
    auto extra = static_cast<std::size_t>(std::ranges::count_if(all, is_one));
    extra -= std::min(extra, most);
    freed = take_if(all, [&](const Requested& one) {
      if (extra == 0 || !may_be_dropped(one)) return false;
      --extra;
      return true;
    });
    requests().look_at = 2 * all.size();  // not at each call, since each looks at all
  }
  for (const State& one : freed) free_in_mpi(*one);
}

}  // namespace sluice::stream_mpi
