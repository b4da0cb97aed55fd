// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Runs the programs that the arguments name, from the one at `first` on, and returns the exit code.
int run_mpis_programs(int argc, char** argv, int first);

/// Steps whose instructions `run_steps` counts, and starts of `run_starts_behind`.
inline constexpr int kCountedSteps = 40;

// exchanges.cpp
void run_ring();
void run_halo();
void run_ping_pong();
void run_crossed();
void run_doubles();
void run_ready();
void run_sends_first();
void run_fan();
void run_ahead();
void run_steps();
void run_starts_behind();
void run_left_lists();
void run_left_lists_beside();
void run_left_lists_ahead();
void run_many_lists_ahead();
void run_many_requests();
void run_beside_mpi();
// background.cpp
void run_answered();
void run_answered_beside();
void run_overwritten();
void run_answered_collectives();
void run_idle_without_credit();
void run_killed_without_credit();
void run_killed_in_put();
void run_killed_before_barrier();
void run_started_again();
void run_waited_for_at_once();
void run_left_without_credit();
void run_left_asleep();
void run_idle_collective();
void run_refused_in_background();
// queues.cpp
void run_queues();
void run_queueless();
void run_alone();
void run_forward();
void run_freed_started();
void run_freed_and_streamed();
void run_freed_without_wait();
void run_stopped();
void run_dropped();
void run_communicators();
void run_without_kernel_copies();
void run_names();
// messages.cpp
void run_types();
void run_nobody();
void run_empty();
void run_statuses();
void run_imatch();
// refusals.cpp
void run_states();
void run_arguments();
void run_freed_stream();
void run_sizes();
void run_timeout();
void run_timeout_of_one();
void run_timeout_of_sends();
void run_killed();
void run_killed_early();
void run_killed_any();
void run_freed_early();
void run_freed_by_receiver();
void run_not_freed_ones();
// collectives.cpp
void run_barrier();
void run_allreduce();
void run_dropped_barriers();
void run_refused_reductions();
void run_together();
// device.cpp
void run_device();
void run_gaps();
