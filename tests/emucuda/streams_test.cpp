// SPDX-License-Identifier: Apache-2.0
// Order: within a stream, between streams, with the default streams, by events.
#include <atomic>
#include <thread>

#include "tests/emucuda/rig.hpp"

namespace emucuda::test {
namespace {

using Streams = Gpu;

TEST_F(Streams, do_things_in_order) {
  std::vector<int> seen;
  CUstream s = stream();
  struct Step {
    std::vector<int>* seen;
    int number;
  };
  std::vector<Step> steps;
  for (int i = 0; i < 1000; ++i) steps.push_back({&seen, i});
  for (Step& step : steps) {
    const auto note = [](void* data) { static_cast<Step*>(data)->seen->push_back(static_cast<Step*>(data)->number); };
    EXPECT_OK(cuLaunchHostFunc(s, note, &step));
  }
  EXPECT_OK(cuStreamSynchronize(s));
  ASSERT_EQ(seen.size(), steps.size());
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
}

TEST_F(Streams, no_call_is_permitted_in_a_host_function) {
  CUresult result = CUDA_SUCCESS;
  CUstream s = stream();
  const auto call = [](void* data) {
    CUdeviceptr pointer = 0;
    *static_cast<CUresult*>(data) = cuMemAlloc(&pointer, 8);
  };
  EXPECT_OK(cuLaunchHostFunc(s, call, &result));
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(result, CUDA_ERROR_NOT_PERMITTED);
}

/// Behind a wait for a word it waits, and other threads do not.
TEST_F(Streams, take_few_functions_of_the_host_ahead) {
  CUstream s = stream();
  CUstream other = stream();
  std::uint64_t& go = word();
  std::atomic<int> ran{0}, given{0};
  const auto count = [](void* data) { ++*static_cast<std::atomic<int>*>(data); };
  EXPECT_OK(cuStreamWaitValue64(s, at(&go), 1, 0));
  std::thread giver([&] {
    EXPECT_OK(cuCtxSetCurrent(context()));
    for (int i = 0; i < 60; ++i, ++given) EXPECT_OK(cuLaunchHostFunc(s, count, &ran));
  });
  while (given < 48) std::this_thread::yield();
  std::atomic<int> others{0};
  EXPECT_OK(cuLaunchHostFunc(other, count, &others));
  EXPECT_OK(cuStreamSynchronize(other));
  EXPECT_EQ(others, 1);
  EXPECT_EQ(given, 48);
  store(go, 1);
  giver.join();
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(ran, 60);
}

TEST_F(Streams, know_where_they_are) {
  CUstream s = stream();
  CUcontext of = nullptr;
  CUdevice device = -1;
  unsigned flags = 99;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_OK(cuStreamGetCtx(s, &of));
  EXPECT_EQ(of, context());
  EXPECT_OK(cuStreamGetDevice(s, &device));
  EXPECT_EQ(device, 0);
  EXPECT_OK(cuStreamGetFlags(s, &flags));
  EXPECT_EQ(flags, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  EXPECT_OK(cuStreamIsCapturing(s, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_OK(cuStreamGetCtx(nullptr, &of));
  EXPECT_EQ(of, context());
}

TEST_F(Streams, a_stale_handle_is_found) {
  CUstream s = nullptr;
  ASSERT_OK(cuStreamCreate(&s, 0));
  EXPECT_OK(cuStreamDestroy(s));
  EXPECT_EQ(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Streams, finish_what_they_have_when_destroyed) {
  std::uint64_t& go = word();
  const CUdeviceptr done = memory(8);
  CUstream s = nullptr;
  ASSERT_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  EXPECT_OK(cuStreamWaitValue64(s, at(&go), 1, 0));
  EXPECT_OK(cuStreamWriteValue64(s, done, 1, 0));
  EXPECT_OK(cuStreamDestroy(s));
  store(go, 1);
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(word_of(done), 1u);
}

// --- default streams -------------------------------------------------------------------------------------------------

using Legacy = Gpu;

TEST_F(Legacy, waits_for_blocking_streams_and_they_for_it) {
  std::uint64_t& go = word();
  const CUdeviceptr words = memory(16);
  CUstream before = stream(CU_STREAM_DEFAULT);
  CUstream after = stream(CU_STREAM_DEFAULT);
  EXPECT_OK(cuStreamWaitValue64(before, at(&go), 1, 0));
  EXPECT_OK(cuStreamWriteValue64(nullptr, words, 1, 0));
  EXPECT_OK(cuStreamWriteValue64(after, words + 8, 1, 0));
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(after), CUDA_ERROR_NOT_READY);
  EXPECT_NE(word_of(words), 1u);
  EXPECT_NE(word_of(words + 8), 1u);
  store(go, 1);
  EXPECT_OK(cuStreamSynchronize(after));
  EXPECT_EQ(word_of(words), 1u);
  EXPECT_EQ(word_of(words + 8), 1u);
}

/// In a process of its own, where the two have queues of their own.
TEST_F(Legacy, does_not_know_non_blocking_streams) {
  EXPECT_EQ(run_alone("Legacy.DISABLED_beside_a_parked_stream", {}), 0);
}

TEST_F(Legacy, DISABLED_beside_a_parked_stream) {
  std::uint64_t& go = word();
  const CUdeviceptr done = memory(8);
  CUstream parked = stream();
  EXPECT_OK(cuStreamWaitValue64(parked, at(&go), 1, 0));
  EXPECT_OK(cuStreamWriteValue64(CU_STREAM_LEGACY, done, 1, 0));
  EXPECT_OK(cuStreamSynchronize(nullptr));
  store(go, 1);
}

TEST_F(Legacy, per_thread_streams_are_blocking_and_a_thread_s_own) {
  std::uint64_t& go = word();
  const CUdeviceptr done = memory(8);
  EXPECT_OK(cuStreamWaitValue64(CU_STREAM_PER_THREAD, at(&go), 1, 0));
  std::thread([&] {
    EXPECT_OK(cuCtxSetCurrent(context()));
    EXPECT_OK(cuStreamWriteValue64(CU_STREAM_PER_THREAD, done, 1, 0));
    EXPECT_OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }).join();
  EXPECT_EQ(word_of(done), 1u);
  EXPECT_EQ(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
  EXPECT_OK(cuStreamWriteValue64(nullptr, done, 2, 0));
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  store(go, 1);
  EXPECT_OK(cuStreamSynchronize(nullptr));
}

// --- events ----------------------------------------------------------------------------------------------------------

class Events : public Gpu {
 public:
  Events() { EXPECT_OK(cuEventCreate(&event_, 0)); }
  ~Events() override { EXPECT_OK(cuEventDestroy(event_)); }

 protected:
  CUevent event_ = nullptr;
};

TEST_F(Events, hold_a_stream_until_another_has_come_there) {
  std::uint64_t& go = word();
  const CUdeviceptr done = memory(8);
  CUstream first = stream();
  CUstream second = stream();
  EXPECT_OK(cuEventQuery(event_)) << "never recorded";
  EXPECT_OK(cuStreamWaitValue64(first, at(&go), 1, 0));
  EXPECT_OK(cuEventRecord(event_, first));
  EXPECT_OK(cuStreamWaitEvent(second, event_, 0));
  EXPECT_OK(cuStreamWriteValue64(second, done, 1, 0));
  EXPECT_EQ(cuEventQuery(event_), CUDA_ERROR_NOT_READY);
  EXPECT_NE(word_of(done), 1u);
  store(go, 1);
  EXPECT_OK(cuEventSynchronize(event_));
  EXPECT_OK(cuStreamSynchronize(second));
  EXPECT_EQ(word_of(done), 1u);
}

TEST_F(Events, measure_time) {
  CUevent end = nullptr;
  float milliseconds = -1;
  ASSERT_OK(cuEventCreate(&end, 0));
  CUstream s = stream();
  EXPECT_OK(cuEventRecord(event_, s));
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, event_, end), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_OK(cuEventRecord(end, s));
  EXPECT_OK(cuEventSynchronize(end));
  EXPECT_OK(cuEventElapsedTime(&milliseconds, event_, end));
  EXPECT_GE(milliseconds, 0);
  EXPECT_OK(cuEventDestroy(end));
}

// --- hardware queues -------------------------------------------------------------------------------------------------

TEST(Queues, that_are_shared_park_all_their_streams) {
  EXPECT_EQ(run_alone("Streams.DISABLED_one_queue", {"CUDA_DEVICE_MAX_CONNECTIONS=1"}), 0);
}

TEST_F(Streams, DISABLED_one_queue) {
  std::uint64_t& go = word();
  const CUdeviceptr done = memory(8);
  CUstream parked = stream();
  CUstream other = stream();
  EXPECT_OK(cuStreamWaitValue64(parked, at(&go), 1, 0));
  EXPECT_OK(cuStreamWriteValue64(other, done, 1, 0));
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    std::this_thread::yield();
  }
  store(go, 1);
  EXPECT_OK(cuStreamSynchronize(other));
}

TEST(Slow, operations_keep_their_order) {
  EXPECT_EQ(run_alone("Words.one_stream*:Words.a_batch_is_done*:Streams.do_things*:Legacy.*:Events.hold*",
                      {"EMUCUDA_SLOW_US=100", "EMUCUDA_SEED=7"}),
            0);
}

}  // namespace
}  // namespace emucuda::test
