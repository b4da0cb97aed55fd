#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Can the tests fail? Switches on one planted bug at a time (base/seeded.hpp), and runs the tests that must find it.

    tests/seeded.py CONFORMANCE_SEEDED [BUG ...]

A bug counts as found when its tests fail, crash or hang. Before that the same tests must pass without any bug. Bugs of networks are
looked for where FI_PROVIDER_PATH is set, those of GPUs where SLUICE_USER_EMUCUDA names the folder of the emulated driver. Prints a line for each bug; exits 1 if a bug was not found, if a test fails without one,
or if the table and the sources name different bugs.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT_MS = 4000  # of each group of ranks: with a bug, most end by it
CLEAN_LIMIT_MS = 20000
AT_ONCE = 8  # most bugs make ranks sleep until the limit

INLINE = "threads_inline_allocated"
HOST = "threads_host_allocated"

CHAOS = "chaos_host_allocated"
SPREAD = "CHAOS_LONGEST_US=5000"  # so that who waits wakes between two arrivals

# What each bug breaks, as a filter of tests, after the settings that they need. One or two that are sure to find it, not
# all that may.
BUGS = {
    "signal_before_data": f"Large/OneWay.*/{INLINE}_d1_64MiB",
    "ignore_credit": f"Quick/Credits.exactly_depth*/{INLINE}_d2_64B",
    "credit_too_early": f"Quick/Credits.exactly_depth*/{INLINE}_d2_64B",
    "stale_epoch": f"Quick/Epochs.every_byte*/{INLINE}_d2_8B",
    "lost_signal": f"Quick/Lockstep.*/{INLINE}_d1_64B",
    "zero_byte_no_signal": f"Quick/Nothing.a_put_of_no_bytes*/{INLINE}_d1_64B",
    "partial_offset_ignored": f"Quick/Parts.*/{INLINE}_d2_4096B",
    "bounce_offset_ignored": "Quick/Parts.*/shm_inline_user_d2_4096B",
    "partial_copies_whole_slot": f"Quick/Parts.*/{INLINE}_d2_4096B",
    "tag_ignores_scope": f"Quick/Matching.tags_of_different_scopes*/{INLINE}_d1_64B",
    "match_newest_first": f"Quick/Matching.several_openings_ahead*/{INLINE}_d1_64B",
    "duplicate_allowed": f"Quick/Misuse.a_duplicate*/{INLINE}_d1_64B",
    "size_mismatch_ignored": f"Quick/Misuse.slots_of_different_sizes*/{INLINE}_d1_64B",
    "contents_mismatch_ignored": f"Quick/Misuse.slots_of_different_contents*/{INLINE}_d1_64B",
    "lost_wake": f"Quick/Progress.who_waits*/{HOST}_d1_64B",
    "poison_permits": f"Quick/Errors.a_put_that_a_failure_released*/{HOST}_d1_64B",
    "failure_not_sticky": f"Quick/Errors.stay_on_their_channel*/{INLINE}_d1_64B",
    "error_not_recorded": f"Quick/Errors.stay_on_their_channel*/{INLINE}_d1_64B",
    "close_frees_early": f"Quick/Closing.close_waits_for*/{HOST}_d1_64B",
    "final_epoch_ignored": f"Quick/Closing.wait_for_ends*/{INLINE}_d1_64B",
    "death_unnoticed": "Quick/Kill.ends_host_forms*/shm_inline_allocated_d1_64B",
    "queue_reorders": "HostStreams.run_what_was_enqueued_in_order",
    "plan_skips_last": f"Quick/Plans.move_every_byte*/{INLINE}_d2_64B",
    "merged_doorbell": "Wrapped/OneWay.*/posted_host_allocated_d8_4096B",
    "busy_put_lost": "Wrapped/Epochs.every_byte*/posted_inline_allocated_d1_4096B",
    "bounce_copies_other_slot": "Quick/Epochs.every_byte*/shm_inline_user_d2_8B",
    "drain_returns_early": f"Quick/HostForms.drain*/{HOST}_d1_64B",
    "landed_at_once": "CHAOS_ORDER=granted CHAOS_INJECT=0 CHAOS_LONGEST_US=20000 Quick/HostForms.drain*/chaos_inline*",
    "abort_keeps_waits": f"Quick/Errors.abort_releases*/{HOST}_d1_64B",
    "source_not_awaited": "Wrapped/Acquire.the_source*/posted_host_allocated_d2_64B",
    "timeout_ignored": f"Quick/Timeouts.a_limit_ends_a_wait*/{INLINE}_d1_64B",
    "stream_timeout_ignored": f"Quick/Timeouts.a_host_stream_may_have*/{HOST}_d1_64B",
    "warning_silent": f"Quick/Timeouts.a_long_wait_is_logged*/{INLINE}_d1_64B",
    "poison_not_repeated": "Poison.is_repeated*",
    "release_without_wait": f"Quick/Misuse.a_release_without*/{INLINE}_d1_64B",
    "stream_kind_not_fixed": f"Quick/Misuse.a_channel_keeps_the_kind*/{INLINE}_d1_64B",
    "sub_tags_collide": f"Quick/Subcontexts.tags_do_not_collide*/{INLINE}_d1_64B",
    "ending_keeps_waits": f"Quick/Errors.a_stream_that_is_destroyed*/{HOST}_d1_64B",
    "queue_capacity_ignored": "HostStreams.a_full_queue_blocks*",
    "loss_after_closing_fails": f"Quick/Closing.a_rank_that_ends_after*/{INLINE}_d1_64B",
    "loss_while_closing_unnoticed": "Quick/Kill.of_a_sender_that_is_closing*/shm_inline_allocated_d1_64B",
    "bounce_signal_before_data": "Large/OneWay.*/shm_inline_user_d1_64MiB",
    "forbidden_copy_tried": "ForbiddenCopies.*",
    "closing_not_looked_at": f"Quick/Closing.a_peer_that_closes_is_answered_soon*/{INLINE}_d1_64B",
    "closing_looked_at_often": "Quick/Closing.a_peer_that_closes_is_answered_soon*/shm_inline_allocated_d1_64B",
    "refused_epoch_counted": f"Quick/Closing.an_epoch_that_is_refused*/{INLINE}_d1_64B",
    "failure_text_whole": "Quick/Errors.a_text_without_end*/shm_inline_allocated_d1_64B",
    "depth_unlimited": f"Quick/Subcontexts.nested_too_deep*/{INLINE}_d1_64B",
    "complains_each_time": "FullMachine.what_cannot_be_reached*",
    "missing_process_lives": "Quick/Kill.*comes_too_late*/shm_inline_allocated_d1_64B",
    "lack_ends_watching": "Quick/Kill.*had_no_descriptor*/shm_inline_allocated_d1_64B",
    "access_bounds_ignored": f"Quick/Accesses.refuse_what_is_out_of_range*/{INLINE}_d4_64B",
    "atomic_in_two_steps": f"Quick/Atomics.fetch_add_loses_nothing*/{INLINE}_d4_64B",
    "compare_ignored": f"Quick/Atomics.compare_swap*/{INLINE}_d4_64B",
    "shut_access_moves": f"Quick/Accesses.move_nothing*/{INLINE}_d4_64B",
    "request_offset_ignored": f"Quick/Accesses.get_every_byte*/{INLINE}_d4_64B",
    "request_overwritten": "Quick/Accesses.get_every_byte*/posted_inline_allocated_d4_64B",
    "stage_offset_ignored": "SLUICE_STAGING=always Quick/Parts.*/ofi_tcp_inline_user_d2_4096B",
    "stage_reused": f"SLUICE_STAGING=always {SPREAD} Quick/OneWay.*/chaos_host_user_d8_13B",
    "word_before_delivery": f"CHAOS_DATA=0 {SPREAD} Quick/OneWay.*/{CHAOS}_d8_13B",
    "epoch_in_number_ignored": "CHAOS_LONGEST_US=20000 Quick/OneWay.*/chaos_*_allocated_d8_13B",
    "unnamed_epochs_at_once": "CHAOS_DATA=1 CHAOS_LONGEST_US=20000 Quick/OneWay.*/chaos_*_allocated_d8_13B",
    "one_rail_awaited": f"SLUICE_RAILS=3 Quick/Epochs.every_byte*/{CHAOS}_d2_4097B",
    "credits_leap_far": "Quick/DeepCredits.*/ofi_tcp_inline_allocated_d1_8B",
    "armed_credit_left": "Quick/Armed.a_credit_that_was_armed*/ofi_sockets_inline_allocated_d4_64B",
    "rider_replaces_put": "Quick/Credits.arrive_though*/ofi_tcp_inline_allocated_d2_64B",
    "credits_await_a_put": "Quick/Credits.arrive_though*/ofi_tcp_inline_allocated_d2_64B",
    "over_when_posted": f"CHAOS_ORDER=granted CHAOS_INJECT=0 Quick/Acquire.the_source*/{CHAOS}_d1_4096B",
    "kept_for_ever": f"Quick/Closing.a_destructor_that_runs_out*/{INLINE}_d1_64B",
    "ticks_and_credits_summed": f"Quick/Credits.exactly_depth_puts_land_where*/{HOST}_d2_64B",
    "shared_threshold_off_by_one": "Wrapped/Plans.move_every_byte*/rung_host_allocated_d2_64B",
    "word_before_data": "SLUICE_LEVEL=0 Large/OneWay.*/ofi_tcp_inline_allocated_d1_64MiB",
    "numbers_injected": "Quick/Kill.during_a_large_copy/ofi_tcp*",
    "number_before_data": "CHAOS_ORDER=granted CHAOS_INJECT=0 Quick/OneWay.*/chaos_host_user_d8_1MiB",
    "entries_kept": "Quick/Budgets.are_kept*/ofi_sockets_inline_allocated_d1_64B",
    "leftovers_fired_early": "Quick/Armed.puts_that_the_stream_never*/emucxi_inline_allocated_d4_64B",
    "refused_fire_left": "Quick/Bursts.leave_whole*/ofi_sockets_inline_allocated_d64_8B",
    "slots_counted_together": "Quick/FailedWrites.*/emucxi_inline_allocated_d1_4096B",
    "copy_before_wait": "SLUICE_KERNEL_PUT_MAX=0 Quick/GpuMemoryOnStreams.is_not_overwritten*/threads_cuda_ours_to_ours_d1_13B",
    "kernel_before_wait": "Quick/GpuMemoryOnStreams.is_not_overwritten*/threads_cuda_ours_to_ours_d1_13B",
    "kernels_skip_waits": "SLUICE_GPU_WAITS=kernel Quick/GpuMemoryOnStreams.is_not_overwritten*/threads_cuda_ours_to_ours_d1_13B",
    "word_before_kernel": "EMUCUDA_SLOW_US=3000 Quick/GpuMemory.gets_every*/threads_cuda_ours_to_ours_d1_13B",
    "refused_awaited": "Quick/GpuPlansNear.that_are_refused*/threads_cuda_ours_to_ours_d1_100000B",
    "engine_sleeps_on": "Quick/GpuMemory.gets_every*/posted_cuda_ours_to_ours_d1_13B",
    "freed_behind_parked": "EMUCUDA_DEADLOCK_MS=1000 Quick/GpuStreams.that_are_parked*/threads_cuda_ours_to_ours_d1_13B",
    "stale_pages_used": "Quick/GpuStreams.move_the_bytes*/threads_cuda_ours_to_ours_d1_13B",
    "freed_behind_kernels": "Quick/Gotchas.nothing_is_freed*/shm_cuda_ours_to_ours_d1_64B",
    "kernels_loaded_late": "EMUCUDA_DEADLOCK_MS=1000 Quick/Gotchas.kernels_of_ours*/shm_cuda_ours_to_ours_d1_64B",
    "hosts_not_told": "Quick/GpuStreams.are_noticed*/threads_cuda_ours_to_ours_d1_13B",
    "landed_not_taken": "Quick/OneWay.*/shm_cuda_user_d8_1MiB",
    "streams_not_asked": "Quick/GpuStreams.that_wait_too_long*/threads_cuda_ours_to_ours_d1_13B",
    "stale_copied_by_driver": "Quick/GpuStreams.leave_memory_that*/threads_cuda_ours_to_ours_d1_13B",
    "captured_slots_unchecked": "Quick/GraphsOfSlots.that_would_leave*/threads_cuda_ours_to_ours_d3_13B",
    "fault_unnoticed": "Quick/GraphsOfSlots.that_find_other*/threads_cuda_ours_to_ours_d3_13B",
    "kernel_bells_shared": "Quick/Graphs.keep_the_credits*/posted_cuda_ours_to_ours_d1_13B",
    "one_armed_too_few": "Quick/Graphs.are_replayed*/rung_cuda_ours_to_ours_d1_13B",
    "kernels_ring_without_credit": "Wrapped/Devices.stop_waiting*/rung_inline_allocated_d1_13B",
    "armed_unsaid": "Quick/Graphs.whose_sender_closes*/rung_cuda_ours_to_ours_d1_13B",
    "kernels_count_from_zero": f"Quick/Devices.go_on_from*/{INLINE}_d1_13B",
    "kernels_not_awaited": "Quick/Graphs.leave_plans*/threads_cuda_ours_to_ours_d1_13B",
    "closing_decides_early": f"Quick/Devices.are_waited_for*/{INLINE}_d1_13B",
    "kernels_not_held": f"Quick/Devices.move_nothing*/{INLINE}_d1_13B",
    "failure_held_as_closing": f"Quick/Devices.say_that*/{INLINE}_d1_13B",
    "closed_end_keeps_peer": "Quick/Pools.serve_several*/shm_cuda_pooled*",
    "piece_imported_twice": "Quick/PoolImports.*/shm_cuda_pooled*",
    "piece_let_go_late": "Quick/Pools.may_free*/shm_cuda_pooled*",
    "parted_with_the_mutex": "Quick/Pools.that_are_held_up*/shm_cuda_pooled*",
    "pools_locked_while_freed": "Quick/Pools.that_are_held_up*/shm_cuda_pooled*",
    "freed_by_synchronizing": "Quick/Gotchas.freeing_ends_no_capture/shm_cuda_*",
    "pool_lets_nobody_in": "Quick/Pools.are_reached*/shm_cuda_pooled*",
    "obstacle_ignored": "Quick/Unmapped.gets_every*/shm_inline_cuda_ours_to_ours_d1_13B",
    "detour_refused": "Quick/Unmapped.gets_every*/shm_cuda_users_to_users_d1_13B",
    "detour_kept": "Quick/Ways.that_are_not_taken*/shm_cuda_ours*",
    "connected_undecided": "Quick/Ways.that_are_undecided*/shm_cuda_ours*",
    "taken_by_engine": "Quick/UnmappedOnStreams.that_is_held_up*/shm_cuda_ours_to_ours_d1_13B",
    "taken_before_copied": "Quick/Unmapped.gets_every*/shm_cuda_ours_to_ours_d3_100000B",
    "taking_not_awaited": "Quick/UnmappedOnStreams.that_is_held_up*/shm_cuda_ours_to_ours_d1_13B",
    "sent_by_engine": "Quick/GpuStaging.that_is_held_up*/ofi_tcp_inline_cuda_ours_to_hosts_d1_13B",
    "sent_before_copied": "Quick/GpuMemory.gets_every*/ofi_tcp_inline_cuda_ours_to_hosts_d3_100000B",
    "acquire_not_poisoned": "Quick/GpuAcquire.*abort/ofi_tcp_cuda_ours_to_hosts_d1_13B",
    "acquire_not_timed": "Quick/GpuAcquire.*timeout/ofi_tcp_cuda_ours_to_hosts_d1_13B",
    "sending_not_awaited": "Quick/GpuStaging.is_not_let_go_of*/ofi_tcp_inline_cuda_ours_to_hosts_d1_13B",
    "lost_copy_awaited": "Quick/GpuStaging.of_a_gpu_that_has_failed*/ofi_tcp_inline_cuda_ours_to_hosts_d1_13B",
    "lost_work_awaited": "Quick/UnmappedOnStreams.of_a_gpu_that_has_failed*/shm_cuda_ours_to_ours_d1_13B",
    "import_kept": "Quick/Ways.that_fail_hold_nothing/shm_cuda_ours*",
    "obstacle_told_each_time": "Quick/UnmappedKinds.is_logged_once/shm_cuda_ours_to_ours_d1_13B",
    "named_stream_failure_lost": "Quick/NamedStreams.*/posted_cuda_ours*",
    "next_handle_untried": "Quick/Ways.are_tried*/shm_cuda_ours*",
    "over_when_fired": "Quick/Bells.*/emucxi_inline_allocated_d1_4096B",
    "settled_before_shut": "Wrapped/Devices.find_nothing*/rung_inline_allocated_d1_13B",
    "part_of_another_armed": "Quick/GpuMemory.keeps_what_is_outside*/rung_cuda_ours_to_ours_d1_13B",
    "late_one_not_armed": "Quick/GpuMemoryInParts.gets_parts*/rung_cuda_ours_to_ours_d1_13B",
    "refused_ring_unmarked": "Quick/GpuPlansNear.that_are_refused_a_part*/rung_cuda_ours_to_ours_d1_100000B",
    "refused_ring_awaited": "Quick/GpuPlansRung.or_puts_whose_rings*/posted_cuda_ours_to_ours_d1_100000B",
    "tried_with_the_mutex": "Quick/GpuPages.that_are_tried_out*/emucxi_cuda_hosts_to_hosts_d1_13B",
    "page_stores_a_total": "Quick/Armed.puts_wait_for*/emucxi_inline_allocated_d4_64B",
}


# They show only where ranks answer soon (runtime/credits.hpp): no other bug runs beside them.
ALONE = {"rider_replaces_put", "credits_leap_far"}
# They show only if two threads meet, or one is not late.
LUCK = {"atomic_in_two_steps", "pools_locked_while_freed", "sending_not_awaited"}


def on_network(bug):
    return re.search("/(ofi_|emucxi|chaos)", BUGS[bug]) is not None


def on_gpu(bug):
    return "_cuda_" in BUGS[bug]


def planted():
    """The bugs that the sources of the library plant."""
    found = set()
    for folder in ("base", "device", "backends", "runtime"):
        for path in (ROOT / folder).rglob("*.[ch]pp"):
            found |= set(re.findall(r'seeded\("(\w+)"\)', path.read_text()))
    return found


def run(program, tests, bug, limit_ms):
    """Returns whether all tests passed, and how many there were."""
    *settings, tests = tests.split()
    environment = dict(os.environ, SLUICE_USER_TEST_LIMIT_MS=str(limit_ms))
    environment.update(setting.split("=") for setting in settings)
    if "_cuda_" in tests:
        environment["LD_LIBRARY_PATH"] = environment["SLUICE_USER_EMUCUDA"]
    if bug:
        environment["SLUICE_USER_SEEDED_BUG"] = bug
    # The tests of a group end by their own limit. This one is for a test program that hangs itself.
    try:
        done = subprocess.run([program, f"--gtest_filter={tests}", "--gtest_fail_fast"], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    except subprocess.TimeoutExpired:
        return False, 1, "hung"
    ran = re.search(r"(\d+) tests? from \d+ test suites? ran", done.stdout)
    return done.returncode == 0, int(ran[1]) if ran else -1, done.stdout


def check_clean(program, bugs):
    """The chosen tests must exist, and pass where there is no bug."""
    good = True
    groups = sorted({BUGS[bug] for bug in bugs})
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda tests: run(program, tests, None, CLEAN_LIMIT_MS), groups)
    for tests, (passed, ran, output) in zip(groups, results):
        if ran == 0:
            print(f"no such test: {tests}")
            good = False
        elif not passed:
            print(f"fails without a bug: {tests}\n{output}")
            good = False
    return good


def check_bug(program, bug):
    """Returns whether the bug was found, and a line that says so."""
    start = time.monotonic()
    limit_ms = CLEAN_LIMIT_MS if "/chaos_" in BUGS[bug] else LIMIT_MS  # being late is not being found
    most = 6 if bug in ALONE | LUCK or "/chaos_" in BUGS[bug] else 3  # what reorders throws dice; and a machine may be busy
    limits = [limit_ms, *[CLEAN_LIMIT_MS] * (most - 1)]  # who looks again has time
    tries = next((n for n, limit in enumerate(limits, 1) if not run(program, BUGS[bug], bug, limit)[0]), None)
    outcome = "NOT FOUND" if tries is None else "found" if tries == 1 else f"found at try {tries}"
    return tries is not None, f"{outcome:9} {bug} ({time.monotonic() - start:.1f} s): {BUGS[bug]}"


def check_bugs(program, bugs):
    """Returns how many were found."""
    count = 0
    for at_once, chosen in ((AT_ONCE, set(bugs) - ALONE), (1, ALONE & set(bugs))):
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            for found, line in pool.map(lambda bug: check_bug(program, bug), sorted(chosen)):
                count += found
                print(line, flush=True)
    return count


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    bugs = sys.argv[2:] or sorted(BUGS)
    good = True
    for bug in sorted(planted() ^ set(BUGS)):
        print(f"{'in the sources, but not in this table' if bug in planted() else 'in this table, but not in the sources'}: {bug}")
        good = False
    bugs = [bug for bug in bugs if bug in planted()]
    if "FI_PROVIDER_PATH" not in os.environ:  # built without networks, or not told where emucxi and chaos are
        unseen = ", ".join(bug for bug in bugs if on_network(bug))
        print(f"SKIPPED-HERE: seeded: no networks in FI_PROVIDER_PATH: {unseen}")
        bugs = [bug for bug in bugs if not on_network(bug)]
    if "SLUICE_USER_EMUCUDA" not in os.environ:  # built without CUDA, or not told where the emulated driver is
        unseen = ", ".join(bug for bug in bugs if on_gpu(bug))
        print(f"SKIPPED-HERE: seeded: no GPU in SLUICE_USER_EMUCUDA: {unseen}")
        bugs = [bug for bug in bugs if not on_gpu(bug)]
    good = check_clean(program, bugs) and good
    found = check_bugs(program, bugs)
    print(f"{found} of {len(bugs)} bugs found")
    return 0 if good and found == len(bugs) else 1


if __name__ == "__main__":
    sys.exit(main())
