// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/options.hpp"
#include "apps/bench/harness/queue.hpp"

#include <sluice/sluice.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace bench {

/// One implementation of what a bench measures: Sluice's or a rival's. All ranks of a workload make and run it
/// together.
class Contender {
 public:
  Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  virtual ~Contender() = default;

  /// Runs the unit of its bench (a round trip, a window of messages, a step of a halo) `count` times.
  /// @returns the time that this took on this rank, in nanoseconds
  virtual double run(long count) = 0;
  /// After so many units everything is as it was. A sample is the mean of a multiple of them.
  virtual long period() const { return 1; }
};

/// A contender, as it is measured and reported.
struct Entry {
  std::string name;
  std::string what;  ///< its method, for people
  std::unique_ptr<Contender> contender;
  /// The pairs of ranks that take part: 0 and 1, 2 and 3, ... The even rank of each measures; all samples are pooled.
  int pairs = 1;
};

/// A unit of the bench `rma`. A flush completes the access at the window.
enum class Access {
  put,           ///< a put, and a flush
  get,           ///< a get, and a flush
  fresh_get,     ///< a get of bytes that their owner has just written, and a flush
  fetch_add,     ///< of a word, and a flush
  compare_swap,  ///< of a word, and a flush
  accumulate,    ///< a sum of 64-bit integers, and a flush
  flush,         ///< a flush alone
  // Round trips, in both directions in turn.
  notice,      ///< a put, a flush, and an empty message to the owner
  put_notify,  ///< a put that the owner waits for, by a counter of its window
  get_notify,  ///< a get, for the end of which the owner waits, by a counter of its window
  // Epochs of a window of both ranks.
  fence,           ///< both put, and fence
  post,            ///< both post, start, put, complete and wait
  lock_exclusive,  ///< a put between lock and unlock
  lock_shared      ///< the same with a shared lock
};

inline bool is_round_trip(Access access) {
  return access == Access::notice || access == Access::put_notify || access == Access::get_notify;
}
inline bool is_of_epochs(Access access) { return access >= Access::fence; }

/// A unit of the bench `collectives`.
enum class Collective {
  barrier,
  allreduce,  ///< a sum of doubles
  broadcast,  ///< by ranks 0 and p - 1 in turn
  allgather,  ///< `bytes` of each rank
  alltoall,   ///< `bytes` from each rank to each
  alltoallv   ///< uneven blocks of `bytes` on average (uneven.hpp)
};

class GpuQueue;
class RivalPrograms;

/// The task of a contender: messages, slots, the partner, and the way in which the steps are driven.
struct Workload {
  sluice::Context& context;
  const Options& options;
  sluice::Rank peer = 0;        ///< the partner of a ping-pong or a flood
  bool first = true;            ///< true for the partner that sends first
  std::size_t bytes = 0;        ///< length of a message
  int depth = 1;                ///< slots of a channel, and of a rival's ring
  int window = 1;               ///< messages of a flood before an answer
  int neighbours = 4;           ///< number of neighbours in a halo
  sluice::Tag tag = 0;          ///< the first tag of the contender's channels
  double compute_ns = 0;        ///< how long a step computes
  Access access = Access::put;  ///< of the bench `rma`
  Collective collective = Collective::barrier;
  int sharers = 1;  ///< ranks that share an array, of the bench `slices`
  Drive drive = Drive::in_order;
  int device = 0;                     ///< the GPU of this rank, if there is one
  RivalPrograms* programs = nullptr;  ///< the processes of this rank's rivals
};

/// The time of `count` round trips, in nanoseconds: the partner that begins sends and then receives, the other one
/// receives and then sends.
template <class Send, class Receive>
double timed_ping_pong(const Workload& workload, long count, Send send, Receive receive) {
  return timed_steps(count, [&] {
    if (workload.first) send();
    receive();
    if (!workload.first) send();
  });
}

/// Makes the stream that the command line names, for a contender that does not run in program order.
/// @param items_per_step  see Queue
std::unique_ptr<Queue> make_queue(const Workload& workload, long items_per_step);
/// Makes the GPU's stream that the command line names.
std::unique_ptr<GpuQueue> make_gpu_queue(const Workload& workload, long items_per_step);

}  // namespace bench
