// SPDX-License-Identifier: Apache-2.0
#include "tests/mpis/programs.hpp"

#include <map>
#include <string>

#include "tests/mpis/order.hpp"

int run_mpis_programs(int argc, char** argv, int first) {
  static const std::map<std::string, void (*)()> programs{
      {"ring", run_ring},
      {"halo", run_halo},
      {"ping_pong", run_ping_pong},
      {"crossed", run_crossed},
      {"doubles", run_doubles},
      {"ready", run_ready},
      {"sends_first", run_sends_first},
      {"fan", run_fan},
      {"ahead", run_ahead},
      {"many_requests", run_many_requests},
      {"queues", run_queues},
      {"queueless", run_queueless},
      {"alone", run_alone},
      {"stopped", run_stopped},
      {"communicators", run_communicators},
      {"names", run_names},
      {"types", run_types},
      {"nobody", run_nobody},
      {"empty", run_empty},
      {"statuses", run_statuses},
      {"imatch", run_imatch},
      {"states", run_states},
      {"arguments", run_arguments},
      {"sizes", run_sizes},
      {"timeout", run_timeout},
      {"killed", run_killed},
      {"killed_early", run_killed_early},
      {"freed_early", run_freed_early},
      {"freed_by_receiver", run_freed_by_receiver},
      {"not_freed", run_not_freed_ones},
      {"barrier", run_barrier},
      {"allreduce", run_allreduce},
      {"together", run_together},
#ifdef WITH_CUDA
      {"device", run_device},
      {"gaps", run_gaps},
#endif
  };
  int level = 0;
  const bool threads = std::string(argv[first]) == "allreduce";
  MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
  for (int i = first; i < argc; ++i) {
    const auto found = programs.find(argv[i]);
    if (found == programs.end()) MPI_Abort(MPI_COMM_WORLD, 2);
    found->second();
    MPI_Barrier(MPI_COMM_WORLD);
  }
  int all = 0;
  const int mine = checks::failures();
  MPI_Reduce(&mine, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (checks::world_rank() == 0 && all == 0) std::puts("passed");
  MPI_Finalize();
  return mine == 0 ? 0 : 1;
}
