// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Runs the programs that the arguments name, from the one at `first` on, and returns the exit code.
int run_mpix_programs(int argc, char** argv, int first);

// cray_exchanges.cpp
void run_cray_ring();
void run_cray_halo();
void run_cray_sizes();
void run_cray_large();
void run_cray_ahead();
void run_cray_streams();
void run_cray_left();
// cray_messages.cpp
void run_cray_communicators();
void run_cray_types();
void run_cray_nobody();
void run_cray_requests();
// cray_refusals.cpp
void run_cray_arguments();
void run_cray_truncation();
void run_cray_timeout();
void run_cray_stopped();
void run_cray_killed();
void run_cray_killed_early();
// mpich_exchanges.cpp
void run_mpich_pair();
void run_mpich_halo();
void run_mpich_meanwhile();
void run_mpich_allreduce();
void run_mpich_communicators();
void run_mpich_statuses();
// mpich_places.cpp
void run_mpich_places();
void run_mpich_progress();
// mpich_refusals.cpp
void run_mpich_arguments();
void run_mpich_truncation();
void run_mpich_late();
// on_gpu.cpp
void run_gpu_memory();
void run_gpu_requests();
void run_gpu_order();
void run_gpu_meanwhile();
void run_gpu_late();
void run_gpu_captures();
void run_gpu_freed();
void run_gpu_failed();
void run_gpu_refused();
