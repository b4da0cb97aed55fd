// SPDX-License-Identifier: Apache-2.0
// The programs, which know MPI alone.
#pragma once

// programs.cpp
/// Runs the programs that the arguments name, from the one at `first` on, and returns the exit code.
int run_programs(int argc, char** argv, int first);

// counted.cpp
inline constexpr int kCountedCalls = 50;  // fewer than the flushes of which one looks at the owner
void run_counted();

// types.cpp
void run_types();
void run_layouts();
void run_bottom();
void run_random_types();
void run_large_types();
void run_other_types();
// accumulates.cpp
void run_accumulates();
// atomics.cpp
void run_atomics();
void run_compare_and_swap();
// turns.cpp
void run_turns();
void run_flags();
void run_lost_turn();
void run_lost_owner();
void run_stopped_owner();
void run_late_write();
void run_lost_fence();
void run_lost_origin();
// epochs.cpp
void run_fences();
void run_flushes();
void run_posts();
void run_locks();
void run_short_locks();
void run_progress();
void run_polling();
void run_requests();
// windows.cpp
void run_facts();
void run_sizes();
void run_errors();
void run_many();
void run_subsets();
void run_few_descriptors();
void run_forbidden_copies();
void run_not_freed();
void run_untouched();
// failing.cpp and unready.cpp, for programs with the sources of the library
void run_failed_fence();
void run_failed_counters();
void run_threads_take_turns();
void run_failed_meeting();
void run_late_access();
void run_late_close();
void run_unreached();
void run_unready();
void run_reused_handles();
void run_unknown_types();
// dynamic.cpp
void run_dynamic();
void run_dynamic_neighbours();
void run_dynamic_errors();
void run_dynamic_lists();
void run_dynamic_types();
// threads.cpp, with MPI_THREAD_MULTIPLE
void run_threads_one_window();
void run_threads_many_windows();
void run_threads_locks();
void run_threads_first_lock_all();
void run_threads_make();
void run_threads_first_use();
void run_threads_detach();  // detaching.cpp
// mixed.cpp
void run_mixed();
// hosts.cpp, for four ranks
void run_hosts_crowded();
void run_hosts_roomy();
// notified.cpp, for programs that are linked with the library
void run_notified();
void run_notified_order();
void run_notified_resets();
void run_notified_numbers();
void run_notified_promises();
void run_notified_errors();
void run_notified_dynamic();
void run_notified_threads();  // with MPI_THREAD_MULTIPLE
void run_notified_threads_full();
void run_notified_threads_reset();
void run_notified_unserved();
void run_notified_streams();
void run_notified_polling();
void run_notified_not_freed();
