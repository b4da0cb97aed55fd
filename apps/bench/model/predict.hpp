// SPDX-License-Identifier: Apache-2.0
// Predictions of the model for the units of benches.
#pragma once

#include "apps/bench/harness/contender.hpp"
#include "collectives/model.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

/// The parts of the text by which a collective describes itself: "shares" of "allreduce 'x': shares (why)".
struct Ran {
  std::string algorithm;
  int ways = 0;                        ///< of a barrier
  sluice::collectives::Levels levels;  ///< of a tree of levels
};
Ran what_ran(std::string_view description);

/// The unit of `collectives`, by what ran. Nothing: the algorithm goes by way of nodes, which one model does not have.
std::optional<sluice::collectives::Time> predict(const sluice::collectives::Model& model, Collective collective,
                                                 const Ran& ran, int ranks, std::size_t bytes);

/// Memory that channels take in a rank, in bytes.
struct MemoryCosts {
  double end = 0;   ///< of an end of a channel
  double peer = 0;  ///< of a rank to which there was no channel before; 0: not known
};

/// A collective of many ranks, by its fastest algorithm.
struct Scaled {
  const char* collective;
  std::string algorithm;
  sluice::collectives::Time time;
  double memory = 0;  ///< bytes of the rank that has most: channels, peers, what the collective keeps, and the result
  double ends = 0;    ///< of channels, of the rank that has most
  std::string limit;  ///< what takes most of the time, or does not fit
};
std::vector<Scaled> scale_to(const sluice::collectives::Model& model, const MemoryCosts& costs, int ranks,
                             std::size_t bytes);

/// |predicted / measured - 1|, in percent; the median of all.
double median_error(const std::vector<double>& ratios);
/// What to print of the ratios of a subject, and of those taken while a line took as long as when the parameters were
/// measured. A goal is about the latter; where fewer than half are of these, it is inconclusive.
std::string error_text(const std::string& subject, const std::vector<double>& all,
                       const std::vector<double>& as_measured, std::optional<double> goal);

/// LogGP::step, if a barrier of so many ranks and ways takes so long, and a message what the other costs say.
double step_of(const sluice::collectives::LogGP& costs, int ranks, int ways, double barrier_ns);

}  // namespace bench
