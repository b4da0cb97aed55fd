// SPDX-License-Identifier: Apache-2.0
// The buffers of a rank in a collective, and the program around it that --touch adds.
#pragma once

#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/harness/contender.hpp"
#include "apps/bench/harness/uneven.hpp"

#include <cstddef>
#include <cstring>

namespace bench {

/// In bytes.
struct CollectiveBytes {
  std::size_t given = 0;
  std::size_t got = 0;  ///< in place, if it is a broadcast
};

inline CollectiveBytes bytes_of(const Workload& workload) {
  const sluice::Rank own = workload.context.rank();
  const sluice::Rank size = workload.context.size();
  const std::size_t one = workload.bytes;
  const std::size_t all = one * static_cast<std::size_t>(size);
  switch (workload.collective) {
    case Collective::barrier: return {};
    case Collective::allgather: return {one, all};
    case Collective::alltoall: return {all, all};
    case Collective::alltoallv: return {uneven_sent(own, size, one), uneven_received(own, size, one)};
    case Collective::allreduce:
    case Collective::broadcast: break;
  }
  return {one, one};
}

/// The root of a broadcast: another one in each step, so that no rank runs ahead of the others.
inline sluice::Rank root_of(const Workload& workload, unsigned step) {
  return step % 2 == 0 ? 0 : workload.context.size() - 1;
}

inline long period_of(const Workload& workload) { return workload.collective == Collective::broadcast ? 2 : 1; }

/// With --touch, computes what a rank gives: finite numbers, others in each step.
inline void compute(const Workload& workload, std::byte* given, unsigned step) {
  if (!workload.options.touch) return;
  if (workload.collective == Collective::broadcast && workload.context.rank() != root_of(workload, step)) return;
  std::memset(given, static_cast<int>(1 + step % 32), bytes_of(workload).given);
}
/// With --touch, reads what a rank has got.
inline void read(const Workload& workload, const std::byte* got, unsigned step) {
  if (!workload.options.touch) return;
  if (workload.collective == Collective::broadcast && workload.context.rank() == root_of(workload, step)) return;
  keep(sum(got, bytes_of(workload).got));
}

}  // namespace bench
