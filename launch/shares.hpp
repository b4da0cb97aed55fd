// SPDX-License-Identifier: Apache-2.0
// How the ranks that one sluice-run starts share the cores of its host.
#pragma once

#include "base/cores.hpp"
#include "launch/launch_flags.hpp"

#include <string>
#include <vector>

namespace sluice::runtime {

struct Shares {
  std::string threads;                  ///< value for OMP_NUM_THREADS of each rank; empty: it stays as it is
  std::vector<std::vector<int>> bound;  ///< cores of each rank here; empty: no rank is bound
  std::vector<std::string> notes;       ///< what -v says
  std::string warning;                  ///< why no rank is bound, though --bind asks for it; empty: no reason
};

/// Without OMP_NUM_THREADS an OpenMP program makes one thread for each core in each rank, and threads of several ranks
/// that spin on the same core slow each other down by orders of magnitude.
/// @param omp_num_threads  value of that variable; null: unset
Shares share_cores(const Request& request, const base::Cores& here, const char* omp_num_threads);

}  // namespace sluice::runtime
