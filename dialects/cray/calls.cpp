// SPDX-License-Identifier: Apache-2.0
// Cray's functions: queues, on which messages are enqueued, started and waited for.
#include <sluice/dialects/cray.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "dialects/messages/at_end.hpp"
#include "dialects/messages/codes.hpp"
#include "dialects/messages/make.hpp"
#include "dialects/messages/on_line.hpp"
#include "dialects/messages/requests.hpp"

namespace sluice::cray {
namespace {

using stream_mpi::argument;
using stream_mpi::Arguments;
using stream_mpi::Direction;
using stream_mpi::Line;
using stream_mpi::Refused;
using stream_mpi::returning;
using stream_mpi::Transfer;

/// Number of requests of complete messages that are kept, since the program may still wait for them or test them.
constexpr std::size_t kRequests = 4096;

class Queue {
 public:
  Queue(MPI_Comm comm, void* stream) : comm_(comm), stream_(stream), line_(stream_mpi::make_message_line(&stream_)) {}

  void enqueue(Arguments arguments, Direction direction, MPI_Request* request) {
    if (arguments.comm == MPI_COMM_NULL) arguments.comm = comm_;
    auto message = stream_mpi::make_transfer(arguments, direction);
    if (line_->gpu()) message->look_for_gpu_memory();
    if (request != nullptr) *request = stream_mpi::kTestable ? stream_mpi::make_request(message) : MPI_REQUEST_NULL;
    enqueued_.push_back(std::move(message));
    stream_mpi::free_requests(kRequests);
  }

  void start() {
    if (enqueued_.empty()) return;
    line_->check();
    drop_complete();
    for (const auto& message : enqueued_) {
      Transfer::add(message);
      started_.push_back({message});
    }
    stream_mpi::enqueue_start(*line_, std::exchange(enqueued_, {}));
  }

  void wait() {
    if (started_.empty()) return;
    line_->check();
    stream_mpi::enqueue_wait(*line_, std::exchange(started_, {}));
  }

  int end() {
    for (const auto& message : enqueued_) message->cancel();
    return line_->wait();
  }

 private:
  /// Programs that wait for requests alone never call `wait`. It still reports those that have failed.
  void drop_complete() {
    if (started_.size() < look_at_) return;
    std::erase_if(started_, [](const auto& one) { return one.message->succeeded(); });
    look_at_ = 2 * started_.size() + kLook;
  }

  static constexpr std::size_t kLook = 64;
  MPI_Comm comm_;
  void* stream_;  // read by the line
  std::unique_ptr<Line> line_;
  std::vector<std::shared_ptr<Transfer>> enqueued_;
  std::vector<stream_mpi::Awaited> started_;
  std::size_t look_at_ = kLook;
};

struct Queues {
  std::mutex mutex;
  std::map<std::uintptr_t, std::shared_ptr<Queue>> all;  // handles grow
  std::uintptr_t last = 0;
};

Queues& queues() {
  static Queues& made = *new Queues;
  return made;
}

std::shared_ptr<Queue> queue_of(MPIX_Queue handle, bool take = false) {
  const std::lock_guard lock(queues().mutex);
  const auto found = queues().all.find(reinterpret_cast<std::uintptr_t>(handle));
  if (found == queues().all.end()) throw Refused(MPI_ERR_ARG, "there is no such queue");
  std::shared_ptr<Queue> queue = found->second;
  if (take) queues().all.erase(found);
  return queue;
}

void end_queues() {
  std::map<std::uintptr_t, std::shared_ptr<Queue>> ending;
  {
    const std::lock_guard lock(queues().mutex);
    ending = std::exchange(queues().all, {});
  }
  for (const auto& [handle, queue] : ending) (void)queue->end();
}

MPIX_Queue add(std::shared_ptr<Queue> queue) {
  static const bool ended_at_end = (stream_mpi::at_end(stream_mpi::Phase::streams, end_queues), true);
  static_cast<void>(ended_at_end);
  const std::lock_guard lock(queues().mutex);
  queues().all.emplace(++queues().last, std::move(queue));
  return reinterpret_cast<MPIX_Queue>(queues().last);
}

}  // namespace
}  // namespace sluice::cray

using namespace sluice::cray;

int MPIX_Create_queue(MPI_Comm comm, void* stream, MPIX_Queue* queue) {
  return returning("MPIX_Create_queue", [&] {
    MPIX_Queue& result = argument(queue, "the queue");
    (void)argument(static_cast<char*>(stream), "the stream");
    if (comm == MPI_COMM_NULL) throw Refused(MPI_ERR_COMM, "a null communicator");
    result = add(std::make_shared<Queue>(comm, stream));
  });
}

int MPIX_Free_queue(MPIX_Queue queue) {
  int met = MPI_SUCCESS;
  const int code = returning("MPIX_Free_queue", [&] { met = queue_of(queue, true)->end(); });
  return code == MPI_SUCCESS ? sluice::stream_mpi::mpi_code(met) : code;
}

int MPIX_Enqueue_send(const void* buffer, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                      MPIX_Queue queue, MPI_Request* request) {
  return returning("MPIX_Enqueue_send", [&] {
    queue_of(queue)->enqueue({buffer, count, datatype, dest, tag, comm}, Direction::send, request);
  });
}

int MPIX_Enqueue_recv(void* buffer, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                      MPIX_Queue queue, MPI_Request* request) {
  return returning("MPIX_Enqueue_recv", [&] {
    queue_of(queue)->enqueue({buffer, count, datatype, source, tag, comm}, Direction::receive, request);
  });
}

int MPIX_Enqueue_start(MPIX_Queue queue) {
  return returning("MPIX_Enqueue_start", [&] { queue_of(queue)->start(); });
}

int MPIX_Enqueue_wait(MPIX_Queue queue) {
  return returning("MPIX_Enqueue_wait", [&] { queue_of(queue)->wait(); });
}
