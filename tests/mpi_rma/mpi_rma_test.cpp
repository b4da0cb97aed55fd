// SPDX-License-Identifier: Apache-2.0
// MPI's windows by Sluice: each test starts this program again, by mpiexec, as the ranks of a program of MPI. The
// sources of libsluice_mpi_rma are part of it, so that their mutants can be planted.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sluice/c/stream.hpp>
#include <sluice/error.hpp>

#include <cstdio>
#include <string>
#include <utility>

#include "tests/conformance/counting.hpp"
#include "tests/mpi_ranks.hpp"
#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"
#include "tests/peers.hpp"

namespace {

using mpi_ranks::Ended;

/// Runs programs on so many ranks.
Ended run(int ranks, const std::string& names, const std::string& settings = "SLUICE_LOG=info") {
  return mpi_ranks::run(mpi_ranks::launcher(ranks) + "env " + settings + " " + mpi_ranks::this_program() +
                        " --programs " + names);
}

constexpr const char* kLogged = "SLUICE_LOG=info";
constexpr const char* kMayHang = "SLUICE_LOG=info timeout 40";  // where a fault is a wait without end
[[maybe_unused]] constexpr const char* kOverNetworks = "SLUICE_LOG=info SLUICE_BACKENDS=ofi:tcp";

void expect_served(int ranks, const std::string& names, const std::string& settings = kLogged) {
  const Ended ended = run(ranks, names, settings);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_NE(ended.output.find("Sluice serves it"), std::string::npos) << ended.output;
  // Standard output may overtake the log.
  EXPECT_NE(("\n" + ended.output).find("\npassed\n"), std::string::npos) << ended.output;
}

TEST(MpiWindows, every_type_and_operation_gives_what_mpi_reduces) { expect_served(2, "types"); }
TEST(MpiWindows, layouts_may_differ_and_a_reduction_sees_elements) { expect_served(2, "layouts bottom"); }
TEST(MpiWindows, types_of_any_kind_are_as_mpi_packs_them) { expect_served(2, "random_types large_types other_types"); }
TEST(MpiWindows, accumulates_of_all_ranks_are_atomic) { expect_served(3, "atomics"); }
TEST(MpiWindows, accumulates_change_their_elements_and_no_others) { expect_served(2, "accumulates"); }
TEST(MpiWindows, accumulates_of_any_length_take_turns_at_each_element) { expect_served(3, "turns"); }
TEST(MpiWindows, accumulates_are_seen_by_those_after_a_flush) { expect_served(2, "flags"); }
TEST(MpiWindows, compare_and_swap_counts) { expect_served(3, "compare_and_swap"); }
TEST(MpiWindows, accesses_of_all_kinds_in_any_order_do_what_a_model_does) { expect_served(2, "mixed"); }
TEST(MpiWindows, fences_order_puts_and_loads) { expect_served(3, "fences"); }
TEST(MpiWindows, flushes_complete_each_of_many_accesses) { expect_served(2, "flushes"); }
TEST(MpiWindows, a_wait_sees_what_was_put_before_complete) { expect_served(3, "posts"); }
TEST(MpiWindows, locks_exclude_each_other) { expect_served(3, "locks"); }
TEST(MpiWindows, locks_that_are_taken_again_and_again_exclude_each_other) { expect_served(2, "short_locks"); }
TEST(MpiWindows, messages_complete_while_a_rank_waits_for_a_lock) { expect_served(2, "progress", kMayHang); }
TEST(MpiWindows, messages_complete_while_a_rank_polls) { expect_served(2, "polling", kMayHang); }
TEST(MpiWindows, a_complete_request_has_its_data) { expect_served(2, "requests"); }
TEST(MpiWindows, names_attributes_groups_and_handlers_are_there) { expect_served(2, "facts"); }
TEST(MpiWindows, units_and_sizes_may_differ) { expect_served(3, "sizes"); }
TEST(MpiWindows, errors_have_their_class_and_change_nothing) { expect_served(2, "errors"); }
TEST(MpiWindows, of_communicators_that_come_and_go) { expect_served(4, "many"); }
TEST(MpiWindows, of_many_sets_of_ranks) { expect_served(4, "subsets"); }
TEST(MpiDynamicWindows, have_every_epoch_and_atomic) { expect_served(3, "dynamic"); }
TEST(MpiDynamicWindows, take_regions_that_adjoin_at_any_byte) { expect_served(2, "dynamic_neighbours"); }
TEST(MpiDynamicWindows, have_errors_that_change_nothing) { expect_served(2, "dynamic_errors"); }
TEST(MpiDynamicWindows, may_attach_and_detach_while_others_access) { expect_served(3, "dynamic_lists"); }
TEST(MpiDynamicWindows, are_reached_by_types_with_addresses) { expect_served(2, "dynamic_types"); }
TEST(MpiDynamicWindows, of_a_rank_alone) { expect_served(1, "dynamic dynamic_errors dynamic_types"); }
TEST(MpiDynamicWindows, notify) { expect_served(2, "notified_dynamic"); }
TEST(MpiThreads, take_turns_at_a_window) { expect_served(1, "threads_take_turns"); }
TEST(MpiThreads, share_a_window) { expect_served(2, "threads_one_window"); }
TEST(MpiThreads, have_windows_of_their_own) { expect_served(2, "threads_many_windows"); }
TEST(MpiThreads, lock_different_ranks) { expect_served(3, "threads_locks"); }
TEST(MpiThreads, lock_while_a_rank_locks_all_for_the_first_time) { expect_served(3, "threads_first_lock_all"); }
TEST(MpiThreads, make_and_free_windows) { expect_served(2, "threads_make"); }
TEST(MpiThreads, use_a_type_for_the_first_time) { expect_served(1, "threads_first_use"); }
TEST(MpiThreads, access_while_another_one_detaches) {
  expect_served(2, "threads_detach", "SLUICE_LOG=info SLUICE_CONNECT_TIMEOUT=20s");
}
TEST(MpiThreads, notify_and_wait) { expect_served(2, "notified_threads"); }
TEST(MpiThreads, enqueue_waits_while_a_callable_of_the_full_stream_makes_accesses) {
  expect_served(1, "notified_threads_full", kMayHang);
}
TEST(MpiThreads, reset_a_counter_while_another_one_waits) { expect_served(2, "notified_threads_reset", kMayHang); }
TEST(MpiNotifications, come_once_for_every_operation) { expect_served(2, "notified"); }
TEST(MpiNotifications, are_seen_after_the_data) { expect_served(2, "notified_order"); }
TEST(MpiNotifications, are_not_lost_by_resets) { expect_served(3, "notified_resets"); }
TEST(MpiNotifications, have_as_many_counters_as_each_rank_asks_for) { expect_served(3, "notified_numbers"); }
TEST(MpiNotifications, of_a_promise_are_there_and_bad_ones_fail_together) { expect_served(2, "notified_promises"); }
TEST(MpiNotifications, have_errors_that_change_nothing) { expect_served(2, "notified_errors"); }
TEST(MpiNotifications, are_waited_for_by_streams) { expect_served(2, "notified_streams"); }
TEST(MpiNotifications, are_polled_for_while_messages_complete) { expect_served(2, "notified_polling", kMayHang); }
TEST(MpiNotifications, of_a_rank_alone) { expect_served(1, "notified notified_order notified_numbers"); }

/// A program may link an archive of Sluice beside the library, which has one too.
TEST(MpiNotifications, refuse_a_host_stream_of_another_copy_of_the_library) {
#ifndef LIBRARY
  std::printf(
      "SKIPPED-HERE: MpiNotifications.refuse_a_host_stream_of_another_copy_of_the_library: there is one copy\n");
  GTEST_SKIP() << "Sluice is a shared library, of which there is one copy";
#else
  void* const library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto find = [&](auto* own, const char* name) { return reinterpret_cast<decltype(own)>(dlsym(library, name)); };
  sluice_host_stream* stream = nullptr;
  ASSERT_EQ(find(&sluice_host_stream_create, "sluice_host_stream_create")(nullptr, &stream), SLUICE_OK);
  EXPECT_THROW(sluice::stream_of(sluice_stream_host(stream)), sluice::Error);
  EXPECT_EQ(find(&sluice_host_stream_free, "sluice_host_stream_free")(&stream), SLUICE_OK);
#endif
}

TEST(MpiWindows, go_on_after_calls_that_fail) {
  expect_served(1, "failed_fence failed_meeting late_access late_close", "SLUICE_LOG=info SLUICE_BACKENDS=posted");
}
TEST(MpiNotifications, that_a_rank_cannot_count_hold_up_no_other) { expect_served(2, "failed_counters"); }

/// A shell hides the death from MPICH's launcher, which would end the other rank too.
void expect_after_a_death(const std::string& text, const std::string& name, const std::string& settings,
                          const std::string& reason = "") {
  const Ended ended = mpi_ranks::run("timeout 30 " MPIEXEC " -n 2 -disable-auto-cleanup sh -c 'trap \"\" USR1; env " +
                                     settings + " " + mpi_ranks::this_program() + " --programs " + name + "; true'");
  EXPECT_NE(ended.output.find(text), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find(reason), std::string::npos) << ended.output;
}

constexpr const char* kTenErrors = "10 accumulates have ended in errors";

TEST(MpiWindows, a_fence_fails_if_a_rank_has_died) {
  expect_after_a_death("a fence has ended in an error", "lost_fence", kLogged);
}

TEST(MpiWindows, are_freed_after_a_wait_that_has_lost_an_origin) {
  expect_after_a_death("a window was freed after the loss of an origin", "lost_origin", kLogged);
}

TEST(MpiWindows, accumulates_fail_each_time_once_the_rank_whose_turn_it_is_has_died) {
  expect_after_a_death(kTenErrors, "lost_turn", kLogged);
#ifdef SLUICE_HAS_OFI
  expect_after_a_death(kTenErrors, "lost_turn", kOverNetworks);
#endif
}

TEST(MpiWindows, accumulates_wait_for_an_owner_that_stands_still) {
#ifndef SLUICE_HAS_OFI
  std::printf(
      "SKIPPED-HERE: MpiWindows.accumulates_wait_for_an_owner_that_stands_still: this build has no libfabric\n");
  GTEST_SKIP() << "this build has no libfabric";
#else
  expect_served(2, "stopped_owner", std::string(kOverNetworks) + " SLUICE_TIMEOUT=5s");
#endif
}

TEST(MpiWindows, accumulates_fail_each_time_once_a_write_of_one_is_late) {
#ifndef SLUICE_HAS_OFI
  std::printf(
      "SKIPPED-HERE: MpiWindows.accumulates_fail_each_time_once_a_write_of_one_is_late: this build has no libfabric\n");
  GTEST_SKIP() << "this build has no libfabric";
#else
  expect_after_a_death(kTenErrors, "late_write", std::string(kOverNetworks) + " SLUICE_TIMEOUT=1s",
                       "the write of an earlier one did not complete");
#endif
}

TEST(MpiWindows, accumulates_fail_each_time_once_the_owner_has_died_in_their_turn) {
#ifndef SLUICE_HAS_OFI
  std::printf(
      "SKIPPED-HERE: MpiWindows.accumulates_fail_each_time_once_the_owner_has_died_in_their_turn: this build has no "
      "libfabric\n");
  GTEST_SKIP() << "this build has no libfabric";
#else
  expect_after_a_death(kTenErrors, "lost_owner", kOverNetworks);
#endif
}

/// MPI sees two hosts, of two ranks each.
TEST(MpiWindows, give_cores_away_where_ranks_outnumber_those_of_their_host) {
  const std::string two_hosts = "SLUICE_LOG=info MPIR_CVAR_ODD_EVEN_CLIQUES=1";
  const Ended crowded = run(4, "hosts_crowded", two_hosts);
  EXPECT_EQ(crowded.code, 0) << crowded.output;
  if (crowded.output.find("one core") != std::string::npos) {
    std::printf("SKIPPED-HERE: MpiWindows.give_cores_away_where_ranks_outnumber_those_of_their_host: one core\n");
    GTEST_SKIP() << "the process may use one core only";
  }
  const std::string crowd = "2 ranks on this host may use 1 cores";
  EXPECT_NE(crowded.output.find(crowd), std::string::npos) << crowded.output;
  const Ended roomy = run(4, "hosts_roomy", two_hosts);
  EXPECT_EQ(roomy.code, 0) << roomy.output;
  EXPECT_EQ(roomy.output.find("ranks on this host"), std::string::npos) << roomy.output;
}

#if defined(__x86_64__) && defined(NDEBUG)
/// Figures of g++ 12 beside each limit.
TEST(MpiWindows, calls_that_programs_make_often_take_few_instructions) {
  if (sluice::test::kSanitized) GTEST_SKIP() << "a sanitizer adds instructions";
  const std::pair<const char*, int> limits[] = {
      {"put", 140},               // 125
      {"get", 140},               // 124
      {"flush", 55},              // 49
      {"accumulate", 185},        // 168
      {"fetch_and_op", 165},      // 150
      {"get_accumulate", 200},    // 183
      {"compare_and_swap", 160},  // 144
      {"exclusive", 560},         // 495
      {"shared", 550},            // 487
      {"unchecked", 330},         // 295
      {"posted", 2300},           // 2029, with those of MPICH 4.0.2
  };
  for (const auto& [call, most] : limits) {
    int instructions = 0;
    for (int tries = 0; tries == 0 || (tries < 3 && instructions > most); ++tries) {  // a call may wait for a thread
      const Ended ended = mpi_ranks::run(mpi_ranks::launcher(1) + "env MPI_RMA_TEST_CALL=" + std::string(call) + " " +
                                         mpi_ranks::this_program() + " --counted");
      if (ended.output.find("not counted: ") != std::string::npos) {
        std::printf("SKIPPED-HERE: MpiWindows.calls_that_programs_make_often_take_few_instructions: not counted\n");
        GTEST_SKIP() << ended.output;
      }
      const auto at = ended.output.find("a call: ");
      ASSERT_NE(at, std::string::npos) << ended.output;
      std::sscanf(ended.output.c_str() + at, "a call: %d instructions", &instructions);
    }
    EXPECT_GT(instructions, 10) << call << ": not stepped";
    EXPECT_LE(instructions, most) << call;
  }
}
#endif

TEST(MpiWindows, serve_a_rank_alone) { expect_served(1, "types fences posts locks requests facts errors"); }
TEST(MpiWindows, are_left_to_mpi_where_a_rank_cannot_make_them) {
  const Ended ended = run(2, "unreached unready");
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_NE(ended.output.find("MPI serves the windows of a communicator: "), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find("MPI serves a window: "), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find("Sluice serves it"), std::string::npos) << ended.output;
}

TEST(MpiWindows, of_a_handle_that_another_thread_frees_are_those_that_mpi_made_last) {
  expect_served(1, "reused_handles");
}

TEST(MpiWindows, types_that_are_not_known_are_refused_and_not_freed) { expect_served(2, "unknown_types"); }

TEST(MpiWindows, are_left_to_mpi_where_no_context_can_be_made) {
  const Ended ended = run(2, "few_descriptors");
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_NE(ended.output.find("MPI serves the windows of a communicator: "), std::string::npos) << ended.output;
}

TEST(MpiWindows, of_the_programs_memory_are_left_to_mpi_where_the_kernel_forbids_copies) {
  const Ended ended = run(2, "forbidden_copies", kMayHang);
  if (ended.output.find("no filter") != std::string::npos) {
    std::printf(
        "SKIPPED-HERE: MpiWindows.of_the_programs_memory_are_left_to_mpi_where_the_kernel_forbids_copies: no seccomp "
        "filter can be set\n");
    GTEST_SKIP() << "no seccomp filter can be set";
  }
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_NE(ended.output.find("MPI serves the windows of the program's own memory"), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find("Sluice serves it"), std::string::npos) << ended.output;
  EXPECT_EQ(ended.output.find("sluice: error"), std::string::npos) << ended.output;
}

TEST(MpiWindows, calls_about_other_things_pass_through) { EXPECT_EQ(run(2, "untouched").code, 0); }

TEST(MpiWindows, that_are_not_freed_are_named_and_the_program_ends) {
  const Ended ended = run(2, "not_freed notified_not_freed");
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_NE(ended.output.find("the window 'forgotten' of 4 bytes was not freed"), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find("the window 'notified' of 4 bytes was not freed"), std::string::npos) << ended.output;
}

TEST(MpiWindows, are_left_to_mpi_where_it_is_told_so) {
  const Ended ended = run(2, "facts notified_unserved", "SLUICE_LOG=info SLUICE_MPI_RMA=0");
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_NE(ended.output.find("MPI serves all windows: SLUICE_MPI_RMA=0"), std::string::npos) << ended.output;
  EXPECT_EQ(ended.output.find("Sluice serves it"), std::string::npos) << ended.output;
}

TEST(MpiWindows, work_over_networks) {
#ifndef SLUICE_HAS_OFI
  std::printf("SKIPPED-HERE: MpiWindows.work_over_networks: this build has no libfabric\n");
  GTEST_SKIP() << "this build has no libfabric";
#endif
  const Ended ended = run(
      2, "layouts compare_and_swap fences posts locks requests notified notified_order notified_resets", kOverNetworks);
  EXPECT_EQ(ended.code, 0) << ended.output;
}

TEST(MpiWindows, take_turns_over_networks) {
#ifndef SLUICE_HAS_OFI
  std::printf("SKIPPED-HERE: MpiWindows.take_turns_over_networks: this build has no libfabric\n");
  GTEST_SKIP() << "this build has no libfabric";
#else
  for (const char* const name : {"atomics", "accumulates", "turns"}) expect_served(2, name, kOverNetworks);
#endif
}

TEST(MpiDynamicWindows, work_over_networks) {
#ifndef SLUICE_HAS_OFI
  std::printf("SKIPPED-HERE: MpiDynamicWindows.work_over_networks: this build has no libfabric\n");
  GTEST_SKIP() << "this build has no libfabric";
#endif
  const Ended ended = run(2, "dynamic dynamic_errors", kOverNetworks);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_NE(ended.output.find("passed"), std::string::npos) << ended.output;
}

/// Prints the cost of a call of run_counted, which this process steps in a child.
int count_calls(int argc, char** argv) {
  const auto work = [&] { return checks::run_named({{"--counted", run_counted}}, argc, argv, 1, false); };
  const auto calls = sluice::test::count_system_calls(work, sluice::test::Others::stand_still);
  if (!calls.why_not.empty()) return std::printf("not counted: %s\n", calls.why_not.c_str()), 0;
  std::printf("a call: %d instructions\n", static_cast<int>(calls.instructions / kCountedCalls));
  return calls.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--counted") return count_calls(argc, argv);
  if (argc > 2 && std::string(argv[1]) == "--programs") return run_programs(argc, argv, 2);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
