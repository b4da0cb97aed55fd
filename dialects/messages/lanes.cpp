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

/// MPI may hold its lock when it calls `progress_lanes`, and then this mutex is taken: no call of MPI while it is held.
struct Lanes {
  std::mutex mutex;
  std::map<Key, std::shared_ptr<Lane>> all;
};

Lanes& lanes() {
  static Lanes& made = *new Lanes;
  return made;
}

/// With the mutex. Null: there is none.
std::shared_ptr<Lane> find_lane(const Key& key) {
  const auto found = lanes().all.find(key);
  return found == lanes().all.end() ? nullptr : found->second;
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

}  // namespace

std::shared_ptr<Lane> lane_of(const Envelope& envelope, Direction direction) {
  const std::uint64_t number = number_of(envelope.comm);
  const Key key{number, envelope.peer, envelope.tag, direction};
  {
    const std::lock_guard lock(lanes().mutex);
    if (auto found = find_lane(key)) return found;
  }
  check_rank_and_tag(envelope);
  const Rank peer = Job::rank_of(envelope.comm, envelope.peer);
  const std::shared_ptr<Job> job = Job::current();
  static const bool closed_at_end = (at_end(Phase::lanes, close_lanes), true);
  static_cast<void>(closed_at_end);
  const std::lock_guard lock(lanes().mutex);
  if (auto found = find_lane(key)) return found;  // another thread has opened it
  Scope scope = job->context.scope("stream mpi messages " + std::to_string(number));
  auto lane = open_lane(*job, std::move(scope), peer, static_cast<Tag>(envelope.tag), direction);
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
