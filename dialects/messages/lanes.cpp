// SPDX-License-Identifier: Apache-2.0
// The lanes of this process.
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dialects/common/outcome.hpp"
#include "dialects/messages/at_end.hpp"
#include "dialects/messages/communicators.hpp"
#include "dialects/messages/lane.hpp"

namespace sluice::stream_mpi {
namespace {

using Key = std::tuple<std::uint64_t, int, int, Direction>;

struct Lanes {
  std::mutex mutex;
  std::map<Key, std::shared_ptr<Lane>> all;
};

Lanes& lanes() {
  static Lanes& made = *new Lanes;
  return made;
}

void close_lanes() {
  std::map<Key, std::shared_ptr<Lane>> closing;
  {
    const std::lock_guard lock(lanes().mutex);
    closing = std::exchange(lanes().all, {});
  }
  for (const auto& [key, lane] : closing)
    if (lane->busy()) lane->fail(std::make_exception_ptr(Refused(MPI_ERR_OTHER, "MPI has ended")));
}

void check(const Envelope& envelope) {
  int size = 0;
  PMPI_Comm_size(envelope.comm, &size);
  if (envelope.peer < 0 || envelope.peer >= size)
    throw Refused(MPI_ERR_RANK, "rank " + std::to_string(envelope.peer) + " of " + std::to_string(size));
  int* most = nullptr;
  int flag = 0;
  PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most), &flag);
  if (envelope.tag < 0 || (flag != 0 && envelope.tag > *most))
    throw Refused(MPI_ERR_TAG, "the tag " + std::to_string(envelope.tag));
}

}  // namespace

std::shared_ptr<Lane> lane_of(const Envelope& envelope, Direction direction) {
  const std::uint64_t number = number_of(envelope.comm);
  const std::lock_guard lock(lanes().mutex);
  const Key key{number, envelope.peer, envelope.tag, direction};
  const auto found = lanes().all.find(key);
  if (found != lanes().all.end()) return found->second;
  check(envelope);
  const std::shared_ptr<Job> job = Job::current();
  static const bool closed_at_end = (at_end(Phase::lanes, close_lanes), true);
  static_cast<void>(closed_at_end);
  Scope scope = job->context.scope("stream mpi messages " + std::to_string(number));
  auto lane = open_lane(*job, std::move(scope), Job::rank_of(envelope.comm, envelope.peer),
                        static_cast<Tag>(envelope.tag), direction);
  return lanes().all.emplace(key, std::move(lane)).first->second;
}

bool progress_lanes() {
  thread_local std::vector<std::shared_ptr<Lane>> busy;
  {
    const std::lock_guard lock(lanes().mutex);
    for (const auto& [key, lane] : lanes().all)
      if (lane->busy()) busy.push_back(lane);
  }
  for (const auto& lane : busy) lane->progress();
  const bool some = !busy.empty();
  busy.clear();
  return some;
}

}  // namespace sluice::stream_mpi
