// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/reach.hpp"

#include <algorithm>
#include <string>

#include "rma/mpi/refused.hpp"
#include "rma/mpi/rma_window.hpp"

namespace sluice::mpi_rma {

std::int64_t reach(const RmaWindow& window, const There& there, const Flat& flat) {
  const Part& part = window.parts[static_cast<std::size_t>(there.rank)];
  const std::int64_t at = there.displacement * part.unit;
  const std::int64_t last = (there.count - 1) * flat.extent;  // negative if values go down
  const std::int64_t begin = at + flat.begin + std::min<std::int64_t>(last, 0);
  const std::int64_t end = at + flat.end + std::max<std::int64_t>(last, 0);
  if (begin >= 0 && end <= part.bytes) return at;
  throw Refused(MPI_ERR_RMA_RANGE, "bytes " + std::to_string(begin) + " to " + std::to_string(end) + " of rank " +
                                       std::to_string(there.rank) + ", which has " + std::to_string(part.bytes));
}

}  // namespace sluice::mpi_rma
