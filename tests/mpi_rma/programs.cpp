// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

int run_programs(int argc, char** argv, int first) {
  static const std::map<std::string, void (*)()> programs{
      {"types", run_types},
      {"layouts", run_layouts},
      {"bottom", run_bottom},
      {"atomics", run_atomics},
      {"fences", run_fences},
      {"compare_and_swap", run_compare_and_swap},
      {"posts", run_posts},
      {"locks", run_locks},
      {"progress", run_progress},
      {"requests", run_requests},
      {"facts", run_facts},
      {"sizes", run_sizes},
      {"errors", run_errors},
      {"many", run_many},
      {"not_freed", run_not_freed},
      {"untouched", run_untouched},
#ifdef WITH_NOTIFIED
      {"notified", run_notified},
      {"notified_order", run_notified_order},
      {"notified_resets", run_notified_resets},
      {"notified_numbers", run_notified_numbers},
      {"notified_promises", run_notified_promises},
      {"notified_errors", run_notified_errors},
      {"notified_streams", run_notified_streams},
      {"notified_not_freed", run_notified_not_freed},
#endif
  };
  MPI_Init(&argc, &argv);
  for (int i = first; i < argc; ++i) {
    const auto found = programs.find(argv[i]);
    if (found == programs.end()) MPI_Abort(MPI_COMM_WORLD, 2);
    found->second();
  }
  int all = 0;
  MPI_Reduce(&checks::failures(), &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (checks::world_rank() == 0) std::printf(all == 0 ? "passed\n" : "%d failures\n", all);
  MPI_Finalize();
  return checks::failures() == 0 ? 0 : 1;
}
