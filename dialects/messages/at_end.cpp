// SPDX-License-Identifier: Apache-2.0
#include "dialects/messages/at_end.hpp"

#include <mpi.h>

#include <map>
#include <mutex>
#include <utility>

#include "dialects/common/outcome.hpp"
#include "rma/mpi/at_finalize.hpp"

namespace sluice::stream_mpi {
namespace {

struct Ends {
  std::mutex mutex;
  std::multimap<Phase, void (*)()> all;
};

Ends& ends() {
  static Ends& made = *new Ends;
  return made;
}

extern "C" int sluice_stream_mpi_at_end(MPI_Comm, int, void*, void*) {
  std::multimap<Phase, void (*)()> ending;
  {
    const std::lock_guard lock(ends().mutex);
    ending = std::exchange(ends().all, {});
  }
  for (const auto& [phase, work] : ending) {
    const int failed = guarded("MPI_Finalize", work);
    static_cast<void>(failed);  // it was logged, and MPI ends all the same
  }
  return MPI_SUCCESS;
}

}  // namespace

// The job, which MPI_Init has made, ends later, since its attribute is older. All work has one attribute, since the
// first uses may come in any order.
void at_end(Phase phase, void (*work)()) {
  const std::lock_guard lock(ends().mutex);
  if (ends().all.empty()) mpi_rma::at_finalize(&sluice_stream_mpi_at_end);
  ends().all.emplace(phase, work);
}

}  // namespace sluice::stream_mpi
