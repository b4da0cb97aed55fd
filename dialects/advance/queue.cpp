// SPDX-License-Identifier: Apache-2.0
#include "dialects/advance/queue.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "dialects/common/progress.hpp"
#include "dialects/common/wait_until.hpp"

namespace sluice::advance {
namespace {

using stream_mpi::Job;
using stream_mpi::Refused;

struct Queues {
  std::mutex mutex;
  std::map<MPIS_Queue, std::shared_ptr<Queue>> all;  // handles grow
  MPIS_Queue last = 0;
  std::atomic<std::uint64_t> taken{0};  // how many times queues were removed
};

Queues& queues() {
  static Queues& made = *new Queues;
  return made;
}

Refused no_such_queue() { return {MPI_ERR_ARG, "there is no such queue"}; }

}  // namespace

void Queue::start(std::span<MPIS_Request> requests) {
  if (on_gpu_) line_->check();
  starting_.clear();
  try {
    for (const MPIS_Request_struct* const handle : requests) {
      if (handle != MPIS_REQUEST_NULL) check_start(*handle);
    }
  } catch (...) {
    for (Request* const request : starting_) request->not_started();
    throw;
  }
  // Receives first: a send of this rank may wait for a peer that waits for the credit of such a receive.
  const auto is_receive = [](const Request* request) { return request->kind() == Request::Kind::receive; };
  if (!std::ranges::is_partitioned(starting_, is_receive))  // it needs memory
    std::stable_partition(starting_.begin(), starting_.end(), is_receive);
  const std::size_t before = started_.size();
  for (Request* const request : starting_) {
    started_.push_back(request);
    operations_.push_back(&request->operation());
  }
  if (!starting_.empty()) line_->start(std::span(operations_).subspan(before));
}

/// Marks the request as started, so that a second start in the same call is found, too.
void Queue::check_start(const MPIS_Request_struct& handle) {
  if (handle.of_match) throw Refused(stream_mpi::kInvalidState, "a start of the request of a match");
  Request& request = *handle.request;
  if (request.matching()) complete_match(request);
  request.check_start(*this);
  starting_.push_back(&request);
  request.start(*this);
}

void Queue::wait_all() {
  if (started_.empty()) return;
  if (on_gpu_) line_->check();
  line_->wait_all(operations_);
  if (on_gpu_) std::ranges::move(freed_, std::back_inserter(on_stream_));  // their end waits for the stream
  forget_started();
}

int Queue::wait() {
  const int met = line_->wait();
  on_stream_.clear();
  return met;
}

void Queue::forget_started() noexcept {
  for (Request* const request : started_) request->not_started();
  started_.clear();
  operations_.clear();
  freed_.clear();
}

Queue::~Queue() {
  line_ = nullptr;
  forget_started();
}

MPIS_Queue add_queue(std::shared_ptr<Queue> queue) {
  const std::lock_guard lock(queues().mutex);
  const MPIS_Queue handle = ++queues().last;
  queues().all.emplace(handle, std::move(queue));
  return handle;
}

// Most calls of a thread name the queue of the call before, for which no lock is needed.
Queue& queue_of(MPIS_Queue handle) {
  struct Found {
    MPIS_Queue handle = 0;
    std::uint64_t taken = 0;
    Queue* queue = nullptr;
  };
  static thread_local Found last;
  const std::uint64_t taken = queues().taken.load(std::memory_order_acquire);
  if (last.queue != nullptr && last.handle == handle && last.taken == taken) return *last.queue;
  const std::lock_guard lock(queues().mutex);
  const auto found = queues().all.find(handle);
  if (found == queues().all.end()) throw no_such_queue();
  last = {handle, taken, found->second.get()};
  return *last.queue;
}

std::shared_ptr<Queue> take_queue(MPIS_Queue handle) {
  const std::lock_guard lock(queues().mutex);
  const auto found = queues().all.find(handle);
  if (found == queues().all.end()) throw no_such_queue();
  std::shared_ptr<Queue> queue = std::move(found->second);
  queues().all.erase(found);
  queues().taken.fetch_add(1, std::memory_order_release);
  return queue;
}

std::shared_ptr<Queue> youngest_queue() {
  const std::lock_guard lock(queues().mutex);
  if (queues().all.empty()) throw Refused(stream_mpi::kInvalidState, "a match without a queue");
  return queues().all.rbegin()->second;
}

std::shared_ptr<Queue> youngest_of_one_kind() {
  const std::lock_guard lock(queues().mutex);
  const auto& all = queues().all;
  const auto on_gpu = [](const auto& entry) { return entry.second->on_gpu(); };
  const auto of_gpus = static_cast<std::size_t>(std::ranges::count_if(all, on_gpu));
  return all.empty() || (of_gpus != 0 && of_gpus != all.size()) ? nullptr : all.rbegin()->second;
}

void end_queues() {
  std::map<MPIS_Queue, std::shared_ptr<Queue>> ending;
  {
    const std::lock_guard lock(queues().mutex);
    ending = std::exchange(queues().all, {});
    queues().taken.fetch_add(1, std::memory_order_release);
  }
  for (const auto& [handle, queue] : ending) (void)queue->wait();
  ending.clear();
  Request::end_all();
}

void complete_match(Request& request) {
  const stream_mpi::MpiProgress progress;
  const auto matched = [&] {
    if (request.advance()) return true;
    Request::help_peers(youngest_of_one_kind().get());
    return false;
  };
  if (!stream_mpi::wait_until(Job::current()->context.connect_timeout(), matched))
    throw Refused(stream_mpi::kNotReady, "the peer of a request has not matched it for SLUICE_CONNECT_TIMEOUT");
}

}  // namespace sluice::advance
