// SPDX-License-Identifier: Apache-2.0
#include "tests/mpix/programs.hpp"

#include <cstdlib>

#include "tests/mpi_rma/checks.hpp"

int run_mpix_programs(int argc, char** argv, int first) {
  static const checks::Programs programs{
      {"answered", run_cray_answered},
      {"many_answered", run_cray_many_answered},
      {"idle", run_cray_idle},
      {"m_answered", run_mpich_answered},
      {"ring", run_cray_ring},
      {"halo", run_cray_halo},
      {"sizes", run_cray_sizes},
      {"large", run_cray_large},
      {"ahead", run_cray_ahead},
      {"streams", run_cray_streams},
      {"left", run_cray_left},
      {"communicators", run_cray_communicators},
      {"types", run_cray_types},
      {"nobody", run_cray_nobody},
      {"requests", run_cray_requests},
      {"arguments", run_cray_arguments},
      {"truncation", run_cray_truncation},
      {"timeout", run_cray_timeout},
      {"stopped", run_cray_stopped},
      {"dropped", run_cray_dropped},
      {"threads", run_cray_threads},
      {"killed", run_cray_killed},
      {"killed_early", run_cray_killed_early},
      {"killed_any", run_cray_killed_any},
      {"m_pair", run_mpich_pair},
      {"m_halo", run_mpich_halo},
      {"m_meanwhile", run_mpich_meanwhile},
      {"m_allreduce", run_mpich_allreduce},
      {"m_freed", run_mpich_freed},
      {"m_freed_running", run_mpich_freed_running},
      {"m_left_running", run_mpich_left_running},
      {"m_communicators", run_mpich_communicators},
      {"m_statuses", run_mpich_statuses},
      {"m_places", run_mpich_places},
      {"m_progress", run_mpich_progress},
      {"m_arguments", run_mpich_arguments},
      {"m_truncation", run_mpich_truncation},
      {"m_dropped", run_mpich_dropped},
      {"m_late", run_mpich_late},
#ifdef WITH_CUDA
      {"gpu_memory", run_gpu_memory},
      {"gpu_requests", run_gpu_requests},
      {"gpu_captures", run_gpu_captures},
      {"gpu_order", run_gpu_order},
      {"gpu_meanwhile", run_gpu_meanwhile},
      {"gpu_late", run_gpu_late},
      {"gpu_freed", run_gpu_freed},
      {"gpu_failed", run_gpu_failed},
      {"gpu_refused", run_gpu_refused},
      {"gpu_start_fails", run_gpu_start_fails},
      {"gpu_two_failures", run_gpu_two_failures},
      {"gpu_freed_started", run_gpu_freed_started},
      {"gpu_late_barrier", run_gpu_late_barrier},
      {"gpu_answered", run_gpu_answered},
      {"gpu_overtaken", run_gpu_overtaken},
      {"gpu_answered_late", run_gpu_answered_late},
      {"gpu_left_in_order", run_gpu_left_in_order},
      {"gpu_left_by_a_busy_stream", run_gpu_left_by_a_busy_stream},
      {"gpu_left_overwritten", run_gpu_left_overwritten},
      {"gpu_advance_captures", run_gpu_advance_captures},
      {"gpu_left_fails", run_gpu_left_fails},
      {"gpu_left_freed", run_gpu_left_freed},
      {"gpu_left_for_good", run_gpu_left_for_good},
      {"gpu_left_killed", run_gpu_left_killed},
      {"gpu_left_idle", run_gpu_left_idle},
#endif
  };
  const bool threads = std::getenv("MPIX_TEST_THREADS") != nullptr;
  return checks::run_named(programs, argc, argv, first, threads);
}
