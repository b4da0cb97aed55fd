// SPDX-License-Identifier: Apache-2.0
#include "tests/mpis/programs.hpp"

#include <string>

#include "tests/mpi_rma/checks.hpp"

int run_mpis_programs(int argc, char** argv, int first) {
  static const checks::Programs programs{
      {"ring", run_ring},
      {"halo", run_halo},
      {"ping_pong", run_ping_pong},
      {"crossed", run_crossed},
      {"doubles", run_doubles},
      {"ready", run_ready},
      {"sends_first", run_sends_first},
      {"fan", run_fan},
      {"ahead", run_ahead},
      {"many_lists_ahead", run_many_lists_ahead},
      {"many_requests", run_many_requests},
      {"beside_mpi", run_beside_mpi},
#ifdef WITH_SOURCES
      {"steps", run_steps},
      {"starts_behind", run_starts_behind},
      {"left_lists", run_left_lists},
      {"left_lists_beside", run_left_lists_beside},
      {"left_lists_ahead", run_left_lists_ahead},
      {"answered", run_answered},
      {"answered_beside", run_answered_beside},
      {"answered_collectives", run_answered_collectives},
      {"overwritten", run_overwritten},
      {"idle_without_credit", run_idle_without_credit},
      {"killed_without_credit", run_killed_without_credit},
      {"killed_in_put", run_killed_in_put},
      {"killed_before_barrier", run_killed_before_barrier},
      {"started_again", run_started_again},
      {"waited_for_at_once", run_waited_for_at_once},
      {"left_without_credit", run_left_without_credit},
      {"left_asleep", run_left_asleep},
      {"idle_collective", run_idle_collective},
      {"refused_in_background", run_refused_in_background},
#endif
      {"queues", run_queues},
      {"queueless", run_queueless},
      {"alone", run_alone},
      {"forward", run_forward},
      {"freed_started", run_freed_started},
      {"freed_and_streamed", run_freed_and_streamed},
      {"freed_without_wait", run_freed_without_wait},
      {"stopped", run_stopped},
      {"dropped", run_dropped},
      {"dropped_barriers", run_dropped_barriers},
      {"communicators", run_communicators},
      {"without_kernel_copies", run_without_kernel_copies},
      {"names", run_names},
      {"types", run_types},
      {"nobody", run_nobody},
      {"empty", run_empty},
      {"statuses", run_statuses},
      {"imatch", run_imatch},
      {"states", run_states},
      {"arguments", run_arguments},
      {"freed_stream", run_freed_stream},
      {"sizes", run_sizes},
      {"timeout", run_timeout},
      {"timeout_of_one", run_timeout_of_one},
      {"timeout_of_sends", run_timeout_of_sends},
      {"killed", run_killed},
      {"killed_early", run_killed_early},
      {"killed_any", run_killed_any},
      {"freed_early", run_freed_early},
      {"freed_by_receiver", run_freed_by_receiver},
      {"not_freed", run_not_freed_ones},
      {"barrier", run_barrier},
      {"allreduce", run_allreduce},
      {"refused_reductions", run_refused_reductions},
      {"together", run_together},
#ifdef WITH_CUDA
      {"device", run_device},
      {"gaps", run_gaps},
#endif
  };
  const std::string name = argv[first];
  const bool threads = name == "allreduce" || name == "refused_reductions" || name == "refused_in_background";
  return checks::run_named(programs, argc, argv, first, threads);
}
