// SPDX-License-Identifier: Apache-2.0
#include "launch/shares.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <cstddef>

namespace sluice::runtime {
namespace {

std::string count_of(std::size_t cores) { return std::to_string(cores) + (cores == 1 ? " core" : " cores"); }

int threads_each(const Request& request, const base::Cores& here) {
  const auto mask = static_cast<double>(here.mask.size());
  const double cores = std::min(mask, here.quota.value_or(mask));
  return std::max(1, static_cast<int>(cores / request.ranks));
}

/// Each rank gets cores that follow each other; some get one more where the number cannot be divided.
std::vector<std::vector<int>> parts_of(const std::vector<int>& cores, std::size_t ranks) {
  std::vector<std::vector<int>> parts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto at = [&](std::size_t part) {
      return cores.begin() + static_cast<std::ptrdiff_t>(cores.size() * part / ranks);
    };
    parts.emplace_back(at(rank), at(rank + 1));
  }
  return parts;
}

std::string list_of(const std::vector<int>& cores) {
  std::string text;
  for (const int core : cores) text += (text.empty() ? "" : ",") + std::to_string(core);
  return text;
}

void bind(const Request& request, const base::Cores& here, Shares& shares) {
  const auto ranks = static_cast<std::size_t>(request.ranks);
  if (here.mask.size() < ranks) {
    shares.warning = "--bind core binds no rank: the affinity mask has " + count_of(here.mask.size()) + " for " +
                     std::to_string(ranks) + " ranks";
    return;
  }
  shares.bound = parts_of(here.mask, ranks);
  for (std::size_t i = 0; i < ranks; ++i)
    shares.notes.push_back("rank " + std::to_string(i) + " of this host is bound to core " + list_of(shares.bound[i]));
}

}  // namespace

Shares share_cores(const Request& request, const base::Cores& here, const char* omp_num_threads) {
  Shares shares;
  if (request.ranks > 1 && omp_num_threads == nullptr) {
    shares.threads = std::to_string(threads_each(request, here));
    shares.notes.push_back("OMP_NUM_THREADS=" + shares.threads + " for each of " + std::to_string(request.ranks) +
                           " ranks: the affinity mask has " + count_of(here.mask.size()) +
                           (here.quota ? ", the cgroup's quota is " + base::decimal(*here.quota, 2) : ""));
  } else if (omp_num_threads != nullptr) {
    shares.notes.push_back(std::string("OMP_NUM_THREADS=") + omp_num_threads + " stays as it was set");
  }
  if (request.bind) bind(request, here, shares);
  return shares;
}

}  // namespace sluice::runtime
