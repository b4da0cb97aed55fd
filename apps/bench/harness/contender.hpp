// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/options.hpp"
#include "apps/bench/harness/queue.hpp"

#include <sluice/sluice.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace bench {

/// One way of doing what a bench measures: Sluice's own or a rival's. Made and run by all ranks of a case together.
class Contender {
 public:
  Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  virtual ~Contender() = default;

  /// Does the unit of its bench (a round trip, a window of messages, a step of a halo) `count` times, with all ranks of
  /// the case.
  /// @returns how long that took here, in nanoseconds.
  virtual double run(long count) = 0;
};

/// A contender and what the output says about it.
struct Entry {
  std::string name;
  std::string what;
  std::unique_ptr<Contender> contender;
  int pairs = 1;  ///< that take part: ranks 0, 2, 4, ... time, one of each, and their samples are pooled
};

class GpuQueue;
class RivalPrograms;

/// What a contender is made for.
struct Case {
  sluice::Context& context;
  const Options& options;
  sluice::Rank peer = 0;  ///< the partner, where there is one
  bool first = true;      ///< of the two partners, the one that begins
  std::size_t bytes = 0;  ///< of a message
  int depth = 1;          ///< slots of a channel, and of a rival's ring
  int window = 1;         ///< messages of a unit, where a unit is a window
  int neighbours = 4;     ///< of a halo
  sluice::Tag tag = 0;    ///< the first of those that its channels use
  double compute_ns = 0;  ///< of a step that computes
  Drive drive = Drive::in_order;
  int device = 0;                     ///< the GPU of this rank, where there is one
  RivalPrograms* programs = nullptr;  ///< of this rank
};

/// The stream that the command line asks for, for a contender that does not run in program order.
std::unique_ptr<Queue> make_queue(const Case& one_case, long items_per_step);
/// Where it is a GPU's.
std::unique_ptr<GpuQueue> make_gpu_queue(const Case& one_case, long items_per_step);

}  // namespace bench
