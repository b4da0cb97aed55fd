// SPDX-License-Identifier: Apache-2.0
// MPI Advance's stream MPI by Sluice: each test starts this program again, by mpiexec. The sources of libsluice_mpis
// are part of it, so that their mutants can be planted.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <tuple>

#include "base/words.hpp"
#include "tests/conformance/counting.hpp"
#include "tests/mpi_ranks.hpp"
#include "tests/mpis/programs.hpp"
#include "tests/peers.hpp"

namespace {

using mpi_ranks::Ended;
using mpi_ranks::expect_passed;
using mpi_ranks::run_ranks;

/// On both kinds of host streams.
void expect_on_host(int ranks, const std::string& names, const std::string& settings = "") {
  expect_passed(ranks, names, "MPIS_TEST_STREAM=own " + settings);
  expect_passed(ranks, names, "MPIS_TEST_STREAM=host " + settings);
}

TEST(Mpis, ring_of_several_ranks_and_of_one) {
  expect_on_host(3, "ring");
  expect_on_host(1, "ring");
}
TEST(Mpis, halo_with_one_peer_in_two_directions) {
  expect_on_host(2, "halo");
  expect_on_host(1, "halo");
}
TEST(Mpis, halo_of_four_ranks) { expect_passed(4, "halo", "MPIS_TEST_STREAM=host"); }
TEST(Mpis, ranks_may_match_in_opposite_order) { expect_on_host(2, "ping_pong crossed"); }
TEST(Mpis, the_nth_request_of_a_tag_belongs_to_the_nth) { expect_on_host(2, "doubles many_requests"); }
TEST(Mpis, nothing_lands_before_the_receive_has_started) { expect_on_host(2, "ready"); }
TEST(Mpis, a_start_holds_no_stream_back) { expect_on_host(2, "sends_first"); }
TEST(Mpis, a_send_without_a_receiver_holds_no_other_back) { expect_on_host(3, "fan"); }
TEST(Mpis, the_host_may_be_far_ahead) {
  expect_on_host(2, "ahead");
  expect_passed(2, "many_lists_ahead", "MPIS_TEST_STREAM=host");
}
#if defined(__x86_64__) && defined(NDEBUG)
struct Cost {
  int instructions = 0;  ///< 0: they could not be counted here
  int locked = 0;
};
/// Returns the cost of one step that this program counts, with one rank.
Cost cost_of(const std::string& name, const std::string& settings) {
  const Ended ended = run_ranks(1, name, settings, false, "--counted");
  Cost cost;
  if (ended.output.find("not counted: ") != std::string::npos) return cost;
  const auto at = ended.output.find("a step: ");
  EXPECT_NE(at, std::string::npos) << ended.output;
  if (at != std::string::npos)
    std::sscanf(ended.output.c_str() + at, "a step: %d instructions, %d locked", &cost.instructions, &cost.locked);
  EXPECT_GT(cost.instructions, 100) << "not stepped";
  return cost;
}

/// Instructions of a host that waits for a step of messages of a rank to itself: 1464 and 4167 with g++ 12, of which 2
/// or 3 are locked. If the stream's thread had run all its calls when it was stopped, the first step adds one, which is
/// 60 more in each.
TEST(Mpis, a_step_takes_few_instructions) {
  if (sluice::test::kSanitized) GTEST_SKIP() << "a sanitizer adds instructions";
  sluice::base::prepare_fences();
  const bool has_fences = sluice::base::kernel_has_fences;  // else each light fence is a locked instruction
  for (const auto& [count, most, most_locked] : {std::tuple(1, 1600, 4), std::tuple(4, 4500, 4)}) {
    Cost cost;
    const auto too_many = [&, most = most, most_locked = most_locked] {
      return cost.instructions > most || (has_fences && cost.locked > most_locked);
    };
    // On a busy machine a step may have to wait for another thread.
    for (int tries = 0; tries < 5 && (tries == 0 || too_many()); ++tries) {
      cost = cost_of("steps", "MPIS_TEST_MESSAGES=" + std::to_string(count));
      if (cost.instructions == 0) GTEST_SKIP() << "not counted";
    }
    EXPECT_LE(cost.instructions, most) << count << " messages";
    EXPECT_LE(has_fences ? cost.locked : 0, most_locked) << count << " messages";
  }
}
/// A line copies a list that it does not know, which takes as long behind many lists as behind few.
TEST(Mpis, a_start_costs_no_more_behind_many_others) {
  if (sluice::test::kSanitized) GTEST_SKIP() << "a sanitizer adds instructions";
  const int few = cost_of("starts_behind", "MPIS_TEST_STREAM=host MPIS_TEST_MESSAGES=20").instructions;
  const int many = cost_of("starts_behind", "MPIS_TEST_STREAM=host MPIS_TEST_MESSAGES=2100").instructions;
  if (few == 0 || many == 0) GTEST_SKIP() << "not counted";
  EXPECT_LT(many, 2 * few);
}
#endif
TEST(Mpis, lists_whose_items_have_run_take_no_memory) {
  if (sluice::test::kSanitized) GTEST_SKIP() << "a sanitizer has its own heap, whose size is not known";
  expect_on_host(1, "left_lists");
  expect_passed(1, "left_lists_beside left_lists_ahead", "MPIS_TEST_STREAM=host");
}
TEST(Mpis, a_host_stream_is_recognised_without_copies_by_the_kernel) {
  expect_passed(1, "without_kernel_copies", "MPIS_TEST_STREAM=host");
}
TEST(Mpis, queues_come_and_go_and_live_together) { expect_on_host(2, "queues queueless"); }
TEST(Mpis, a_queue_moves_on_while_its_host_does_something_else) { expect_on_host(2, "alone"); }
TEST(Mpis, a_host_that_waits_lets_mpi_make_progress) { expect_on_host(2, "beside_mpi"); }
TEST(Mpis, a_send_without_credit_moves_on_while_the_program_waits_by_mpi) { expect_on_host(2, "answered"); }
TEST(Mpis, a_send_that_stays_without_credit_keeps_no_other_back_in_the_background) {
  expect_on_host(2, "answered_beside");
}
TEST(Mpis, collectives_move_on_while_the_program_waits_by_mpi) {
  expect_on_host(3, "answered_collectives");
  expect_passed(4, "answered_collectives", "MPIS_TEST_STREAM=host");
}
TEST(Mpis, a_send_may_start_again_while_the_background_puts_it) { expect_on_host(2, "started_again"); }
TEST(Mpis, a_buffer_is_the_programs_again_behind_the_wait) { expect_on_host(2, "overwritten"); }
TEST(Mpis, a_send_that_waits_for_credit_uses_no_core) { expect_on_host(2, "idle_without_credit"); }
TEST(Mpis, a_collective_that_waits_for_a_rank_uses_no_core) { expect_on_host(2, "idle_collective"); }
TEST(Mpis, what_streams_wait_for_at_once_is_looked_at_seldom) { expect_on_host(1, "waited_for_at_once"); }
TEST(Mpis, a_collective_that_fails_in_the_background_tells_its_wait_why) {
  for (const char* const stream : {"own", "host"}) {
    const Ended ended = run_ranks(2, "refused_in_background", std::string("MPIS_TEST_STREAM=") + stream);
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_NE(ended.output.find("MPI_Reduce_local fails"), std::string::npos) << ended.output;
  }
}
TEST(Mpis, a_start_overtakes_nothing_in_its_queue) { expect_on_host(2, "forward"); }
TEST(Mpis, a_request_may_be_freed_after_its_start) {
  expect_on_host(2, "freed_started", "SLUICE_TIMEOUT=1h");
  expect_passed(2, "freed_and_streamed", "MPIS_TEST_STREAM=host SLUICE_TIMEOUT=1h");
}
TEST(Mpis, a_request_that_is_started_ends_with_its_queue) {
  expect_on_host(2, "freed_without_wait", "SLUICE_TIMEOUT=1h");
}
TEST(Mpis, a_wait_returns_when_the_stream_has_stopped) { expect_passed(1, "stopped"); }
TEST(Mpis, what_a_stopped_stream_drops_fails_at_the_peer_too) {
  expect_passed(2, "dropped", "MPIS_TEST_STREAM=host SLUICE_TIMEOUT=1h");
  expect_passed(3, "dropped_barriers", "MPIS_TEST_STREAM=host SLUICE_TIMEOUT=1h");
}
TEST(Mpis, sends_that_have_timed_out_leave_nothing_behind) {
  expect_passed(2, "timeout_of_sends", "SLUICE_TIMEOUT=300ms");
}
TEST(Mpis, communicators_have_their_own_ranks_and_matches) { expect_on_host(3, "communicators"); }
TEST(Mpis, queues_and_memory_need_no_peer) { expect_passed(1, "names", ""); }
TEST(Mpis, datatypes_are_packed_and_unpacked) { expect_on_host(2, "types"); }
TEST(Mpis, messages_may_be_empty_or_for_nobody) { expect_on_host(2, "nobody empty"); }
TEST(Mpis, statuses_have_source_tag_and_count) { expect_on_host(2, "statuses"); }
TEST(Mpis, matches_may_complete_later) { expect_on_host(2, "imatch"); }
TEST(Mpis, a_wrong_state_is_refused_and_changes_nothing) { expect_on_host(2, "states"); }
TEST(Mpis, wrong_arguments_and_wildcards_are_refused) { expect_passed(1, "arguments", ""); }
TEST(Mpis, a_freed_host_stream_is_refused) { expect_passed(1, "freed_stream", "SLUICE_GPUS=none"); }
TEST(Mpis, both_ends_learn_that_a_message_does_not_fit) { expect_on_host(2, "sizes"); }
TEST(Mpis, a_match_that_took_too_long_can_be_tried_again) {
  expect_passed(2, "timeout timeout_of_one", "SLUICE_CONNECT_TIMEOUT=200ms");
}
TEST(Mpis, a_wait_ends_when_the_peer_frees_its_request) {
  const Ended ended = run_ranks(2, "freed_early", "");
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_NE(ended.output.find("the peer has freed the request of a message"), std::string::npos) << ended.output;
}
TEST(Mpis, a_receiver_that_has_the_message_may_free_its_request) {
  expect_passed(2, "freed_by_receiver", "MPIS_TEST_STREAM=host");
}
TEST(Mpis, a_barrier_waits_for_all) { expect_on_host(3, "barrier"); }
TEST(Mpis, an_allreduce_combines_all) { expect_on_host(3, "allreduce"); }
TEST(Mpis, an_allreduce_that_cannot_be_combined_is_an_error) { expect_on_host(3, "refused_reductions"); }
TEST(Mpis, messages_and_collectives_are_waited_for_together) { expect_on_host(3, "together"); }

TEST(Mpis, what_is_not_freed_ends_with_mpi) {
  for (const char* const name : {"not_freed", "left_without_credit", "left_asleep"}) {
    const Ended ended = run_ranks(2, name, "");
    EXPECT_EQ(ended.code, 0) << name << ": " << ended.output;
    EXPECT_EQ(ended.output, "passed\n") << name;
  }
}

TEST(Mpis, waits_end_when_a_peer_dies) {
  for (const char* const name : {"killed", "killed_early", "killed_without_credit", "killed_before_barrier"}) {
    const Ended ended = run_ranks(2, name, "", true);
    EXPECT_NE(ended.output.find("the peer is lost"), std::string::npos) << name << ": " << ended.output;
  }
}

TEST(Mpis, waits_end_when_a_peer_dies_during_a_put_in_the_background) {
  const Ended ended = run_ranks(2, "killed_in_put", "SLUICE_TIMEOUT=1h MPIS_TEST_MAPPED=1", true);
  EXPECT_NE(ended.output.find("the peer is lost"), std::string::npos) << ended.output;
}

TEST(Mpis, waits_end_when_a_peer_dies_at_any_instant) {
  for (int i = 0; i < 5; ++i) {
    const Ended ended = run_ranks(2, "killed_any", "SLUICE_TIMEOUT=1h", true);
    EXPECT_NE(ended.output.find("the peer is lost"), std::string::npos) << ended.output;
  }
}

TEST(Mpis, works_over_networks) {
#ifndef SLUICE_HAS_OFI
  std::printf("SKIPPED-HERE: Mpis.works_over_networks: this build has no libfabric\n");
  GTEST_SKIP() << "this build has no libfabric";
#endif
  expect_passed(2, "ping_pong doubles ready sends_first types together answered",
                "MPIS_TEST_STREAM=host SLUICE_BACKENDS=ofi:tcp");
  expect_passed(3, "answered_collectives", "MPIS_TEST_STREAM=host SLUICE_BACKENDS=ofi:tcp");
  // On a busy machine the peer may have all bytes before it dies.
  bool lost = false;
  for (int tries = 0; tries < 10 && !lost; ++tries) {
    const Ended ended = run_ranks(2, "killed_in_put", "SLUICE_TIMEOUT=1h SLUICE_BACKENDS=ofi:tcp", true);
    lost = ended.output.find("the peer is lost") != std::string::npos;
  }
  EXPECT_TRUE(lost);
}

/// Prints the cost of a step of run_steps, which this process steps in a child.
int count_steps(int argc, char** argv) {
  const auto calls = sluice::test::count_system_calls([&] { return run_mpis_programs(argc, argv, 2); },
                                                      sluice::test::Others::stand_still);
  if (!calls.why_not.empty()) return std::printf("not counted: %s\n", calls.why_not.c_str()), 0;
  std::printf("a step: %d instructions, %d locked\n", static_cast<int>(calls.instructions / kCountedSteps),
              static_cast<int>(calls.locked / kCountedSteps));
  return calls.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "--counted") return count_steps(argc, argv);
  if (argc > 2 && std::string(argv[1]) == "--programs") return run_mpis_programs(argc, argv, 2);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
