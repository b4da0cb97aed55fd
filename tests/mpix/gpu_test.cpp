// SPDX-License-Identifier: Apache-2.0
// Cray's and MPICH's stream MPI on streams of the emulated GPU: each test starts this program again, by mpiexec.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/mpi_ranks.hpp"
#include "tests/mpix/programs.hpp"

namespace {

using mpi_ranks::Ended;
using mpi_ranks::run_ranks;

constexpr const char* kOnCuda = "MPIX_TEST_STREAM=cuda MPIX_TEST_THREADS=1 ";
/// Kernels add.
constexpr const char* kSums = "MPIS_TEST_STREAM=cuda EMUCUDA_KERNELS=" EMUCUDA_KERNELS " ";

void expect_passed_on_gpu(int ranks, const std::string& names, const std::string& settings = "") {
  mpi_ranks::expect_passed(ranks, names, kOnCuda + settings);
}

TEST(MpixGpu, on_cuda_streams_queues_move_messages_as_on_host_streams) {
  expect_passed_on_gpu(3, "ring halo communicators");
  expect_passed_on_gpu(2, "halo sizes large streams types nobody requests arguments truncation left");
  expect_passed_on_gpu(1, "ring halo");
}
TEST(MpixGpu, on_cuda_streams_communicators_move_messages_as_on_host_streams) {
  expect_passed_on_gpu(3, "m_halo m_allreduce m_communicators");
  expect_passed_on_gpu(2, "m_pair m_halo m_meanwhile m_statuses m_arguments m_truncation");
}
TEST(MpixGpu, on_cuda_streams_messages_lie_in_memory_of_the_gpu_and_leave_the_rest_of_it) {
  expect_passed_on_gpu(2, "gpu_memory");
  expect_passed_on_gpu(1, "gpu_memory");
}
TEST(MpixGpu, on_cuda_streams_requests_sums_and_gaps_lie_in_memory_of_the_gpu) {
  expect_passed_on_gpu(3, "gpu_requests");
}
TEST(MpixGpu, on_cuda_streams_nothing_moves_before_the_stream_comes_there) { expect_passed_on_gpu(2, "gpu_order"); }
TEST(MpixGpu, on_cuda_streams_messages_move_while_the_gpu_works) { expect_passed_on_gpu(2, "gpu_meanwhile"); }
TEST(MpixGpu, on_cuda_streams_time_before_a_wait_does_not_count) {
  expect_passed_on_gpu(1, "gpu_late", "SLUICE_TIMEOUT=1s");
}
TEST(MpixGpu, on_cuda_streams_a_wait_ends_and_gives_the_buffer_back) {
  expect_passed_on_gpu(2, "timeout", "SLUICE_TIMEOUT=1500ms");
}
TEST(MpixGpu, on_cuda_streams_that_are_called_hips_do_the_same) {
#ifdef HIP_ON_CUDA
  const std::string settings = "MPIX_TEST_STREAM=hip MPIX_TEST_THREADS=1 SLUICE_GPUS=hip LD_LIBRARY_PATH=" HIP_ON_CUDA;
  mpi_ranks::expect_passed(2, "m_pair m_halo m_allreduce gpu_requests gpu_order", settings);
  const std::string of_advance =
      settings + " MPIS_TEST_STREAM=hip LD_PRELOAD=libamdhip64.so EMUCUDA_KERNELS=" EMUCUDA_KERNELS;
  mpi_ranks::expect_passed(
      2,
      "gpu_answered gpu_answered_late gpu_left_in_order gpu_left_by_a_busy_stream gpu_left_freed gpu_sums_answered "
      "gpu_sums_in_order gpu_sums_freed",
      of_advance);
#else
  std::printf("SKIPPED-HERE: MpixGpu.on_cuda_streams_that_are_called_hips_do_the_same: this build has no HIP\n");
  GTEST_SKIP() << "this build has no HIP";
#endif
}
TEST(MpixGpu, on_cuda_streams_that_capture_calls_are_refused_and_change_nothing) {
  expect_passed_on_gpu(2, "gpu_captures");
}
TEST(MpixGpu, on_cuda_streams_that_wait_memory_is_freed_later) { expect_passed_on_gpu(1, "gpu_freed"); }
TEST(MpixGpu, on_cuda_streams_of_a_gpu_that_has_failed_messages_fail) {
  expect_passed_on_gpu(1, "gpu_failed", "SLUICE_TIMEOUT=1h");
}
TEST(MpixGpu, on_cuda_streams_a_host_that_waits_lets_mpi_make_progress) {
  expect_passed_on_gpu(2, "beside_mpi m_beside_mpi");
  mpi_ranks::expect_passed(2, "gpu_beside_mpi", kSums);
}
TEST(MpixGpu, on_cuda_streams_requests_start_behind_one_that_has_failed) {
  expect_passed_on_gpu(2, "gpu_start_fails", "MPIS_TEST_STREAM=cuda SLUICE_TIMEOUT=4s");
}
TEST(MpixGpu, on_cuda_streams_a_match_that_fails_hides_no_older_failure) {
  expect_passed_on_gpu(2, "gpu_two_failures", "MPIS_TEST_STREAM=cuda SLUICE_TIMEOUT=1s");
}
TEST(MpixGpu, on_cuda_streams_requests_that_are_freed_hold_up_no_host) {
  expect_passed_on_gpu(1, "gpu_freed_started", "MPIS_TEST_STREAM=cuda");
}
TEST(MpixGpu, on_cuda_streams_a_barrier_is_matched_once_its_peers_have_matched_it) {
  expect_passed_on_gpu(2, "gpu_late_barrier", "MPIS_TEST_STREAM=cuda SLUICE_CONNECT_TIMEOUT=3s");
}
TEST(MpixGpu, on_cuda_streams_a_send_whose_receive_has_started_leaves_at_its_start) {
  expect_passed_on_gpu(2, "gpu_answered", "MPIS_TEST_STREAM=cuda SLUICE_TIMEOUT=30s");
}
TEST(MpixGpu, on_cuda_streams_a_send_with_credit_overtakes_one_without_it) {
  expect_passed_on_gpu(2, "gpu_overtaken", "MPIS_TEST_STREAM=cuda SLUICE_TIMEOUT=5s");
}
TEST(MpixGpu, on_cuda_streams_requests_move_beside_those_of_host_streams) {
  expect_passed_on_gpu(2, "gpu_and_host", "MPIS_TEST_STREAM=cuda");
}
TEST(MpixGpu, on_cuda_streams_sends_leave_when_their_receives_start_though_no_stream_waits) {
  expect_passed_on_gpu(2, "gpu_answered_late gpu_left_by_a_busy_stream gpu_left_by_two_streams",
                       "MPIS_TEST_STREAM=cuda SLUICE_TIMEOUT=30s");
}
TEST(MpixGpu, on_cuda_streams_collectives_go_on_though_no_stream_waits) {
  for (const int ranks : {2, 3})
    expect_passed_on_gpu(ranks, "gpu_sums_answered gpu_barriers_answered", std::string(kSums) + "SLUICE_TIMEOUT=30s");
}
TEST(MpixGpu, on_cuda_streams_that_are_busy_or_capture_collectives_go_on) {
  expect_passed_on_gpu(2, "gpu_sums_by_a_busy_stream", kSums);
}
TEST(MpixGpu, on_cuda_streams_collectives_begin_no_earlier_than_at_their_start) {
  expect_passed_on_gpu(2, "gpu_sums_in_order", kSums);
}
TEST(MpixGpu, on_cuda_streams_what_follows_a_collective_runs_behind_the_librarys_stream) {
  expect_passed_on_gpu(2, "gpu_sums_behind_own_stream", kSums);
}
TEST(MpixGpu, on_cuda_streams_a_wait_goes_on_with_a_collective_that_has_begun) {
  expect_passed_on_gpu(3, "gpu_sums_halfway", kSums);
}
TEST(MpixGpu, on_cuda_streams_a_collective_that_waits_for_a_peer_holds_up_no_send) {
  expect_passed_on_gpu(2, "gpu_sums_hold_up_no_send", kSums);
}
TEST(MpixGpu, on_cuda_streams_without_one_of_the_library_collectives_go_on_at_their_wait) {
  expect_passed_on_gpu(2, "gpu_sums_left_to_the_wait", std::string(kSums) + "EMUCUDA_STREAMS_OF_PRIORITY=0");
}
TEST(MpixGpu, on_cuda_streams_collectives_that_are_left_end_with_their_queue_their_request_and_mpi) {
  expect_passed_on_gpu(2, "gpu_sums_freed gpu_sums_left_for_good", kSums);
}
TEST(MpixGpu, on_cuda_streams_a_collective_that_is_left_fails_when_the_driver_refuses_a_step) {
  expect_passed_on_gpu(2, "gpu_sums_refused", std::string(kSums) + "SLUICE_TIMEOUT=1h");
}
TEST(MpixGpu, on_cuda_streams_a_collective_that_is_left_fails_when_a_peer_dies) {
  const Ended ended = run_ranks(2, "gpu_sums_killed", std::string(kOnCuda) + kSums + "SLUICE_TIMEOUT=1h", true);
  EXPECT_NE(ended.output.find("the peer is lost"), std::string::npos) << ended.output;
}
TEST(MpixGpu, on_cuda_streams_sends_and_collectives_go_on_in_the_background_over_networks) {
#ifndef SLUICE_HAS_OFI
  std::printf(
      "SKIPPED-HERE: MpixGpu.on_cuda_streams_sends_and_collectives_go_on_in_the_background_over_networks: no "
      "libfabric\n");
  GTEST_SKIP() << "this build has no libfabric";
#endif
  expect_passed_on_gpu(2,
                       "gpu_answered_late gpu_left_in_order gpu_left_by_a_busy_stream gpu_sums_answered "
                       "gpu_sums_in_order",
                       std::string(kSums) + "SLUICE_BACKENDS=ofi:tcp");
}
TEST(MpixGpu, on_cuda_streams_sends_leave_no_earlier_than_at_their_start) {
  expect_passed_on_gpu(2, "gpu_left_in_order", "MPIS_TEST_STREAM=cuda");
}
TEST(MpixGpu, on_cuda_streams_a_wait_takes_a_send_back_from_the_background) {
  expect_passed_on_gpu(2, "gpu_left_taken_back", "MPIS_TEST_STREAM=cuda");
}
TEST(MpixGpu, on_cuda_streams_a_buffer_is_written_behind_the_put_of_another_stream) {
  expect_passed_on_gpu(2, "gpu_left_overwritten", "MPIS_TEST_STREAM=cuda");
}
TEST(MpixGpu, on_cuda_streams_that_refuse_the_answer_of_another_stream_the_host_answers) {
  expect_passed_on_gpu(2, "gpu_left_answer_refused", "MPIS_TEST_STREAM=cuda");
}
TEST(MpixGpu, on_cuda_streams_that_cannot_wait_for_the_put_of_another_stream_the_host_waits) {
  expect_passed_on_gpu(2, "gpu_left_wait_refused gpu_left_by_two_gpus", "MPIS_TEST_STREAM=cuda");
}
TEST(MpixGpu, on_cuda_streams_a_send_may_start_again_while_another_stream_puts_it) {
  expect_passed_on_gpu(2, "gpu_left_started_again", "MPIS_TEST_STREAM=cuda");
}
TEST(MpixGpu, on_cuda_streams_without_one_of_the_library_sends_leave_at_their_wait) {
  expect_passed_on_gpu(2, "gpu_left_to_the_wait", "MPIS_TEST_STREAM=cuda EMUCUDA_STREAMS_OF_PRIORITY=0");
}
TEST(MpixGpu, on_cuda_streams_of_a_gpu_that_is_lost_sends_that_are_left_fail) {
  const Ended ended = run_ranks(1, "gpu_left_lost", std::string(kOnCuda) + "MPIS_TEST_STREAM=cuda SLUICE_TIMEOUT=1h");
  EXPECT_NE(ended.output.find("the peer is lost"), std::string::npos) << ended.output;
}
TEST(MpixGpu, on_cuda_streams_the_background_is_no_second_thread_for_the_checks) {
  expect_passed_on_gpu(
      2,
      "gpu_answered_late gpu_left_in_order gpu_left_by_two_streams gpu_left_overwritten gpu_left_freed "
      "gpu_sums_answered gpu_sums_in_order gpu_sums_freed",
      std::string(kSums) + "SLUICE_CHECK=1");
}
TEST(MpixGpu, on_cuda_streams_that_capture_starts_and_waits_are_refused) {
  expect_passed_on_gpu(2, "gpu_advance_captures", "MPIS_TEST_STREAM=cuda");
}
TEST(MpixGpu, on_cuda_streams_a_start_whose_signal_is_refused_leaves_at_its_wait) {
  expect_passed_on_gpu(2, "gpu_left_refused", "MPIS_TEST_STREAM=cuda");
}
TEST(MpixGpu, on_cuda_streams_a_send_that_has_failed_holds_up_no_other) {
  expect_passed_on_gpu(2, "gpu_left_fails", "MPIS_TEST_STREAM=cuda SLUICE_TIMEOUT=4s");
}
TEST(MpixGpu, on_cuda_streams_sends_that_are_left_end_with_their_queue_their_request_and_mpi) {
  expect_passed_on_gpu(2, "gpu_left_freed gpu_left_for_good", "MPIS_TEST_STREAM=cuda");
}
TEST(MpixGpu, on_cuda_streams_what_is_left_is_looked_at_seldom) {
  expect_passed_on_gpu(2, "gpu_left_idle", "MPIS_TEST_STREAM=cuda");
}
TEST(MpixGpu, on_cuda_streams_a_send_that_is_left_fails_when_its_peer_dies) {
  const Ended ended =
      run_ranks(2, "gpu_left_killed", std::string(kOnCuda) + "MPIS_TEST_STREAM=cuda SLUICE_TIMEOUT=1h", true);
  EXPECT_NE(ended.output.find("the peer is lost"), std::string::npos) << ended.output;
}
TEST(MpixGpu, on_cuda_streams_kernels_may_wait) {
  expect_passed_on_gpu(2, "halo m_halo", std::string("SLUICE_GPU_WAITS=kernel EMUCUDA_KERNELS=") + EMUCUDA_KERNELS);
}
TEST(MpixGpu, on_cuda_streams_are_refused_where_they_cannot_wait) {
  const Ended ended = run_ranks(1, "gpu_refused", std::string(kOnCuda) + "EMUCUDA_WORD_OPERATIONS=0");
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_NE(ended.output.find("cannot wait for words"), std::string::npos) << ended.output;
}
TEST(MpixGpu, on_cuda_streams_waits_end_when_a_peer_dies) {
  for (const char* const name : {"killed", "killed_early"}) {
    const Ended ended = run_ranks(2, name, std::string(kOnCuda) + "SLUICE_TIMEOUT=1h", true);
    EXPECT_NE(ended.output.find("the peer is lost"), std::string::npos) << name << ": " << ended.output;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "--programs") return run_mpix_programs(argc, argv, 2);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
