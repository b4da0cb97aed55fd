// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

int run_programs(int argc, char** argv, int first) {
  static const checks::Programs programs{
      {"types", run_types},
      {"layouts", run_layouts},
      {"bottom", run_bottom},
      {"random_types", run_random_types},
      {"large_types", run_large_types},
      {"other_types", run_other_types},
      {"atomics", run_atomics},
      {"accumulates", run_accumulates},
      {"turns", run_turns},
      {"flags", run_flags},
      {"lost_turn", run_lost_turn},
      {"lost_owner", run_lost_owner},
      {"stopped_owner", run_stopped_owner},
      {"late_write", run_late_write},
      {"lost_fence", run_lost_fence},
      {"lost_origin", run_lost_origin},
      {"fences", run_fences},
      {"flushes", run_flushes},
      {"compare_and_swap", run_compare_and_swap},
      {"posts", run_posts},
      {"locks", run_locks},
      {"short_locks", run_short_locks},
      {"progress", run_progress},
      {"polling", run_polling},
      {"requests", run_requests},
      {"facts", run_facts},
      {"sizes", run_sizes},
      {"errors", run_errors},
      {"many", run_many},
      {"subsets", run_subsets},
      {"few_descriptors", run_few_descriptors},
      {"forbidden_copies", run_forbidden_copies},
      {"dynamic", run_dynamic},
      {"dynamic_neighbours", run_dynamic_neighbours},
      {"dynamic_errors", run_dynamic_errors},
      {"dynamic_lists", run_dynamic_lists},
      {"dynamic_types", run_dynamic_types},
      {"threads_one_window", run_threads_one_window},
      {"threads_many_windows", run_threads_many_windows},
      {"threads_locks", run_threads_locks},
      {"threads_first_lock_all", run_threads_first_lock_all},
      {"threads_make", run_threads_make},
      {"threads_first_use", run_threads_first_use},
      {"threads_detach", run_threads_detach},
      {"mixed", run_mixed},
      {"hosts_crowded", run_hosts_crowded},
      {"hosts_roomy", run_hosts_roomy},
      {"not_freed", run_not_freed},
      {"untouched", run_untouched},
#ifdef WITH_UNREADY
      {"failed_fence", run_failed_fence},
      {"failed_counters", run_failed_counters},
      {"failed_meeting", run_failed_meeting},
      {"late_access", run_late_access},
      {"late_close", run_late_close},
      {"unreached", run_unreached},
      {"unready", run_unready},
      {"reused_handles", run_reused_handles},
      {"unknown_types", run_unknown_types},
#endif
#ifdef WITH_NOTIFIED
      {"notified", run_notified},
      {"notified_order", run_notified_order},
      {"notified_resets", run_notified_resets},
      {"notified_numbers", run_notified_numbers},
      {"notified_promises", run_notified_promises},
      {"notified_errors", run_notified_errors},
      {"notified_dynamic", run_notified_dynamic},
      {"notified_threads", run_notified_threads},
      {"notified_threads_full", run_notified_threads_full},
      {"notified_threads_reset", run_notified_threads_reset},
      {"notified_unserved", run_notified_unserved},
      {"notified_streams", run_notified_streams},
      {"notified_polling", run_notified_polling},
      {"notified_not_freed", run_notified_not_freed},
#endif
  };
  bool threads = false;
  for (int i = first; i < argc; ++i) threads = threads || std::string(argv[i]).find("threads") != std::string::npos;
  return checks::run_named(programs, argc, argv, first, threads);
}
