// SPDX-License-Identifier: Apache-2.0
#include "dialects/advance/request.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "dialects/advance/queue.hpp"
#include "dialects/common/transfers.hpp"

namespace sluice::advance {
namespace {

using stream_mpi::kInvalidState;
using stream_mpi::kUnsupported;
using stream_mpi::Refused;

/// The requests of this process: all, and those that are not matched.
struct Unmatched {
  std::mutex mutex;
  std::vector<Request*> all;
  std::vector<Request*> live;
};

Unmatched& unmatched_ones() {
  static Unmatched& made = *new Unmatched;
  return made;
}

}  // namespace

Request::Request(std::shared_ptr<stream_mpi::Job> job, const stream_mpi::Envelope& envelope, Kind kind,
                 stream_mpi::Layout layout)
    : job_(std::move(job)), envelope_(envelope), kind_(kind), layout_(std::move(layout)) {
  const std::lock_guard lock(unmatched_ones().mutex);
  unmatched_ones().all.push_back(this);
  unmatched_ones().live.push_back(this);
}

Request::Request(std::unique_ptr<stream_mpi::Pairing> naming)
    : kind_(Kind::collective), begun_(true), pairing_(std::move(naming)) {
  const std::lock_guard lock(unmatched_ones().mutex);
  unmatched_ones().all.push_back(this);
  unmatched_ones().live.push_back(this);
}

Request::~Request() {
  {
    const std::lock_guard lock(unmatched_ones().mutex);
    std::erase(unmatched_ones().all, this);
    std::erase(unmatched_ones().live, this);
  }
  end("MPIS_Request_free");
}

void Request::end(const char* where) {
  pairing_ = nullptr;
  if (operation_ != nullptr && operation_->end())
    (void)stream_mpi::guarded(where, [&] { operation_->close(kContextTimeout); });
  operation_ = nullptr;
  job_ = nullptr;
}

void Request::end_all() {
  std::vector<Request*> left;
  {
    const std::lock_guard lock(unmatched_ones().mutex);
    left = std::exchange(unmatched_ones().live, {});
    unmatched_ones().all.clear();
  }
  for (Request* const request : left) request->end("MPI_Finalize");
}

void Request::begin(const Queue& queue) {
  begun_ = true;
  const auto gpu = queue.line().gpu();
  on_gpu_ = gpu.has_value();
  if (to_nobody()) return;
  const auto make = kind_ == Kind::send ? stream_mpi::pair_send : stream_mpi::pair_receive;
  try {
    pairing_ = make(job_, envelope_, std::move(layout_), gpu);
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void Request::check_match(const Queue& queue) const {
  const std::lock_guard lock(unmatched_ones().mutex);
  if (matched() && !next_match_permitted_) throw Refused(kInvalidState, "a match of a request that is matched already");
  const bool has_kind = kind_ == Kind::collective ? state_ != State::unmatched : begun_ && !to_nobody();
  if (has_kind && on_gpu_ != queue.on_gpu())
    throw Refused(kUnsupported, "a match for a queue of another kind than the one with which it has begun");
}

void Request::match_on(const Queue& queue) {
  const std::lock_guard lock(unmatched_ones().mutex);
  if (state_ != State::unmatched) return;
  if (kind_ == Kind::collective) on_gpu_ = queue.on_gpu();
  if (!begun_) begin(queue);
  state_ = State::matching;
}

bool Request::pair() {
  if (operation_ != nullptr) return true;
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  if (to_nobody()) return operation_ = stream_mpi::make_nothing(), true;
  try {
    if (!pairing_->advance()) return false;
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
  operation_ = std::move(pairing_->operation);
  bytes_ = pairing_->bytes;
  pairing_ = nullptr;
  return true;
}

bool Request::advance() {
  if (state_ == State::matched) return true;
  const std::lock_guard lock(unmatched_ones().mutex);
  if (!pair() || (on_gpu_ && !operation_->connected())) return false;
  state_ = State::matched;
  std::erase(unmatched_ones().all, this);
  return true;
}

void Request::describe(MPI_Status* status) const {
  if (status == MPI_STATUS_IGNORE) return;
  const bool empty = kind_ == Kind::collective;
  status->MPI_SOURCE = empty ? MPI_ANY_SOURCE : envelope_.peer;
  status->MPI_TAG = empty || to_nobody() ? MPI_ANY_TAG : envelope_.tag;
  status->MPI_ERROR = MPI_SUCCESS;
  PMPI_Status_set_elements_x(status, MPI_BYTE, static_cast<MPI_Count>(bytes_));
  PMPI_Status_set_cancelled(status, 0);
}

void Request::check_start(const Queue& queue) const {
  if (!matched()) throw Refused(kInvalidState, "a start of a request that is not matched");
  if (started_on_ != nullptr) throw Refused(kInvalidState, "a second start of a request before MPIS_Enqueue_waitall");
  if (!to_nobody() && on_gpu_ != queue.on_gpu())
    throw Refused(kUnsupported, "a start on a queue of another kind than that of the match");
}

void Request::help_peers(const Queue* queue) {
  const std::lock_guard lock(unmatched_ones().mutex);
  const auto& all = unmatched_ones().all;
  const auto kin_of = [](const Request* one) {
    const stream_mpi::Envelope& envelope = one->envelope_;
    return std::tuple(one->kind_, envelope.comm, envelope.peer, envelope.tag);
  };
  std::map<decltype(kin_of(nullptr)), int> unmatched;
  if (queue != nullptr && std::ranges::any_of(all, [](const Request* one) { return !one->begun_; }))
    for (const Request* const one : all)
      if (one->state_ == State::unmatched) ++unmatched[kin_of(one)];
  for (Request* const request : all) {
    if (queue != nullptr && !request->begun_ && unmatched[kin_of(request)] == 1) request->begin(*queue);
    // The program gets a failure from its own call for this match.
    if (request->begun_ && request->failure_ == nullptr)
      (void)stream_mpi::guarded("a match that a peer has asked for", [&] { (void)request->pair(); });
  }
}

}  // namespace sluice::advance
