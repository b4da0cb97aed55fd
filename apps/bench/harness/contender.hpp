// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/options.hpp"
#include "apps/bench/harness/queue.hpp"

#include <sluice/sluice.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace bench {

/// One implementation of what a bench measures: Sluice's or a rival's. Made and run by all ranks of a workload
/// together.
class Contender {
 public:
  Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  virtual ~Contender() = default;

  /// Runs the unit of its bench (a round trip, a window of messages, a step of a halo) `count` times, with all ranks of
  /// the workload.
  /// @returns the time that this took here, in nanoseconds.
  virtual double run(long count) = 0;
};

/// A contender and its names in the output.
struct Entry {
  std::string name;
  std::string what;
  std::unique_ptr<Contender> contender;
  int pairs = 1;  ///< that take part: one rank of each, 0, 2, 4, ..., measures, and their samples are pooled
};

class GpuQueue;
class RivalPrograms;

/// The parameters of a contender.
struct Workload {
  sluice::Context& context;
  const Options& options;
  sluice::Rank peer = 0;  ///< the partner, if there is one
  bool first = true;      ///< true for the partner that begins
  std::size_t bytes = 0;  ///< of a message
  int depth = 1;          ///< slots of a channel, and of a rival's ring
  int window = 1;         ///< messages of a unit, if a unit is a window
  int neighbours = 4;     ///< of a halo
  sluice::Tag tag = 0;    ///< the first tag of its channels
  double compute_ns = 0;  ///< of a step that computes
  Drive drive = Drive::in_order;
  int device = 0;                     ///< the GPU of this rank, if there is one
  RivalPrograms* programs = nullptr;  ///< of this rank
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

/// The stream that the command line names, for a contender that does not run in program order.
std::unique_ptr<Queue> make_queue(const Workload& workload, long items_per_step);
/// Like make_queue, for a GPU's stream.
std::unique_ptr<GpuQueue> make_gpu_queue(const Workload& workload, long items_per_step);

}  // namespace bench
