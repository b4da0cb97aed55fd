// SPDX-License-Identifier: Apache-2.0
// Cray's and MPICH's stream MPI by Sluice: each test starts this program again, by mpiexec. The sources of
// libsluice_mpis are part of it, so that their mutants can be planted.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/mpi_ranks.hpp"
#include "tests/mpix/programs.hpp"

namespace {

using mpi_ranks::Ended;
using mpi_ranks::expect_passed;
using mpi_ranks::run_ranks;

TEST(MpixCray, ring_of_several_ranks_and_of_one) {
  expect_passed(3, "ring");
  expect_passed(1, "ring");
}
TEST(MpixCray, halo_with_one_peer_in_two_directions) { expect_passed(2, "halo"); }
TEST(MpixCray, halo_of_four_ranks_and_of_one) {
  expect_passed(4, "halo");
  expect_passed(1, "halo");
}
TEST(MpixCray, the_nth_send_of_a_tag_is_received_by_the_nth_whatever_its_size) { expect_passed(2, "sizes"); }
TEST(MpixCray, large_messages_move_while_the_stream_waits_for_another) { expect_passed(2, "large"); }
TEST(MpixCray, messages_move_on_while_the_program_waits_by_mpi) { expect_passed(2, "answered many_answered"); }
TEST(MpixCray, a_host_that_waits_lets_mpi_make_progress) { expect_passed(2, "beside_mpi m_beside_mpi"); }
TEST(MpixCray, a_message_that_waits_for_credit_uses_no_core) { expect_passed(2, "idle"); }
TEST(MpixCray, the_host_may_be_far_ahead) { expect_passed(2, "ahead"); }
TEST(MpixCray, streams_may_share_a_tag) { expect_passed(2, "streams"); }
TEST(MpixCray, communicators_have_their_own_ranks_and_messages) { expect_passed(3, "communicators"); }
TEST(MpixCray, datatypes_are_packed_and_unpacked) { expect_passed(2, "types"); }
TEST(MpixCray, messages_may_be_empty_or_for_nobody) { expect_passed(2, "nobody"); }
TEST(MpixCray, requests_may_be_waited_for_or_dropped) {
  expect_passed(2, "requests");
  expect_passed(2, "requests", "MPIX_TEST_THREADS=1");
}
TEST(MpixCray, a_queue_that_is_left_completes_in_finalize) {
  const Ended ended = run_ranks(2, "left", "");
  EXPECT_EQ(ended.code, 0) << ended.output;
  std::size_t arrived = 0;
  for (std::size_t at = 0; (at = ended.output.find("has arrived", at)) != std::string::npos; ++at) ++arrived;
  EXPECT_EQ(arrived, 2U) << ended.output;
  EXPECT_EQ(ended.output.find("sluice: error"), std::string::npos) << ended.output;
}
TEST(MpixCray, wrong_arguments_and_wildcards_are_refused) { expect_passed(2, "arguments"); }
TEST(MpixCray, a_communicator_whose_number_was_lost_is_refused) { expect_passed(2, "unnumbered"); }
TEST(MpixCray, a_message_that_does_not_fit_is_an_error_and_the_next_arrives) { expect_passed(2, "truncation"); }
TEST(MpixCray, a_wait_ends_and_gives_the_buffer_back) { expect_passed(2, "timeout", "SLUICE_TIMEOUT=1500ms"); }
TEST(MpixCray, a_stream_that_has_stopped_leaves_no_wait_behind) { expect_passed(1, "stopped"); }

TEST(MpixCray, what_a_stopped_stream_drops_fails_at_the_peer_too) { expect_passed(2, "dropped", "SLUICE_TIMEOUT=1h"); }
TEST(MpixCray, a_thread_may_wait_while_another_uses_new_tags) { expect_passed(1, "threads", "MPIX_TEST_THREADS=1"); }

TEST(MpixCray, waits_end_when_a_peer_dies_at_any_instant) {
  for (int i = 0; i < 5; ++i) {
    const Ended ended = run_ranks(2, "killed_any", "SLUICE_TIMEOUT=1h", true);
    EXPECT_NE(ended.output.find("the peer is lost"), std::string::npos) << ended.output;
  }
}

TEST(MpixCray, waits_end_when_a_peer_dies) {
  for (const char* const name : {"killed", "killed_early"}) {
    const Ended ended = run_ranks(2, name, "SLUICE_TIMEOUT=1h", true);
    EXPECT_NE(ended.output.find("the peer is lost"), std::string::npos) << name << ": " << ended.output;
  }
}

TEST(MpixCray, works_over_networks) {
#ifndef SLUICE_HAS_OFI
  std::printf("SKIPPED-HERE: MpixCray.works_over_networks: this build has no libfabric\n");
  GTEST_SKIP() << "this build has no libfabric";
#endif
  expect_passed(2, "halo sizes large types requests answered", "SLUICE_BACKENDS=ofi:tcp");
}

TEST(MpixMpich, messages_move_in_the_order_of_the_stream) { expect_passed(2, "m_pair"); }
TEST(MpixMpich, halo_of_several_ranks_and_with_one_peer_in_two_directions) {
  expect_passed(4, "m_halo");
  expect_passed(2, "m_halo");
}
TEST(MpixMpich, sends_that_have_begun_move_while_the_stream_waits) { expect_passed(2, "m_meanwhile"); }
TEST(MpixMpich, messages_move_on_while_the_program_waits_by_mpi) { expect_passed(2, "m_answered"); }
TEST(MpixMpich, an_allreduce_combines_all) { expect_passed(3, "m_allreduce", "MPIX_TEST_THREADS=1"); }
TEST(MpixMpich, a_communicator_that_is_freed_leaves_no_buffers) { expect_passed(2, "m_freed"); }
TEST(MpixMpich, an_allreduce_outlives_its_communicator) {
  expect_passed(2, "m_freed_running");
  expect_passed(3, "m_freed_running");
  const Ended ended = run_ranks(2, "m_left_running", "SLUICE_TIMEOUT=1h");
  EXPECT_EQ(ended.code, 0) << ended.output;
}
TEST(MpixMpich, places_of_extremes_need_no_thread_level) {
  expect_passed(3, "m_places");
  expect_passed(2, "m_places");
}
TEST(MpixMpich, progress_moves_messages_without_a_wait) { expect_passed(2, "m_progress"); }
TEST(MpixMpich, duplicates_keep_the_stream) { expect_passed(3, "m_communicators"); }
TEST(MpixMpich, statuses_are_written_by_the_stream) { expect_passed(2, "m_statuses"); }
TEST(MpixMpich, wrong_arguments_and_wildcards_are_refused) { expect_passed(2, "m_arguments", "SLUICE_GPUS=none"); }
TEST(MpixMpich, a_message_that_does_not_fit_is_an_error) { expect_passed(2, "m_truncation"); }
TEST(MpixMpich, an_allreduce_that_one_rank_drops_ends_at_all) { expect_passed(3, "m_dropped", "SLUICE_TIMEOUT=1h"); }
TEST(MpixMpich, an_allreduce_may_be_called_again_after_a_timeout) {
  expect_passed(2, "m_late", "SLUICE_CONNECT_TIMEOUT=2s");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "--programs") return run_mpix_programs(argc, argv, 2);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
