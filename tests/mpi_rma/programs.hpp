// SPDX-License-Identifier: Apache-2.0
// The programs, which know MPI alone.
#pragma once

// programs.cpp
/// Runs the programs that the arguments name, from the one at `first` on, and returns the exit code.
int run_programs(int argc, char** argv, int first);

// types.cpp
void run_types();
void run_layouts();
void run_bottom();
// atomics.cpp
void run_atomics();
void run_compare_and_swap();
// epochs.cpp
void run_fences();
void run_posts();
void run_locks();
void run_progress();
void run_requests();
// windows.cpp
void run_facts();
void run_sizes();
void run_errors();
void run_many();
void run_not_freed();
void run_untouched();
// notified.cpp, for programs that are linked with the library
void run_notified();
void run_notified_order();
void run_notified_resets();
void run_notified_numbers();
void run_notified_promises();
void run_notified_errors();
void run_notified_streams();
void run_notified_not_freed();
