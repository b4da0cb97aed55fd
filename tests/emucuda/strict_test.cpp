// SPDX-License-Identifier: Apache-2.0
// What a real driver may let pass, or hang at: calls that wait behind a parked stream, memory that is freed too early.
#include <cstdlib>

#include "tests/emucuda/rig.hpp"

namespace emucuda::test {
namespace {

/// Each in a process of its own, which has a short limit and dies.
class Deadlock : public testing::Test {
 protected:
  Deadlock() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  template <class Call>
  static void behind_parked_stream(Call call) {
    ::setenv("EMUCUDA_DEADLOCK_MS", "100", 1);
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUdeviceptr pointer = 0;
    void* host = nullptr;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    cuMemAlloc(&pointer, 8);
    cuMemAllocHost(&host, 8);
    cuStreamCreate(&stream, CU_STREAM_DEFAULT);
    cuStreamWaitValue64(stream, pointer, 1, CU_STREAM_WAIT_VALUE_EQ);
    call(pointer, host);
  }
};

TEST_F(Deadlock, of_cuMemFree_is_told) {
  EXPECT_DEATH(behind_parked_stream([](CUdeviceptr pointer, void*) { cuMemFree(pointer); }),
               "emucuda: deadlock: cuMemFree waits for a stream that is parked at word 0x[0-9a-f]+, for the value 1");
}

TEST_F(Deadlock, of_cuMemAlloc_is_told) {
  EXPECT_DEATH(behind_parked_stream([](CUdeviceptr pointer, void*) { cuMemAlloc(&pointer, 8); }),
               "emucuda: deadlock: cuMemAlloc waits");
}

TEST_F(Deadlock, of_cuMemFreeHost_is_told) {
  EXPECT_DEATH(behind_parked_stream([](CUdeviceptr, void* host) { cuMemFreeHost(host); }),
               "emucuda: deadlock: cuMemFreeHost waits");
}

TEST_F(Deadlock, of_cuModuleLoadData_is_told) {
  EXPECT_DEATH(behind_parked_stream([](CUdeviceptr, void* host) {
                 CUmodule module = nullptr;
                 cuModuleLoadData(&module, host);
               }),
               "emucuda: deadlock: cuModuleLoadData waits");
}

TEST_F(Deadlock, of_a_copy_on_the_legacy_stream_is_told) {
  EXPECT_DEATH(behind_parked_stream([](CUdeviceptr pointer, void* host) { cuMemcpyDtoH(host, pointer, 8); }),
               "emucuda: deadlock: cuMemcpyDtoH waits");
}

// --- memory that is gone ---------------------------------------------------------------------------------------------

class Strict : public Gpu {
 protected:
  CUdeviceptr of_pool(CUstream s) {
    CUdeviceptr pointer = 0;
    EXPECT_OK(cuMemAllocAsync(&pointer, 8, s));
    return pointer;
  }
};

TEST_F(Strict, DISABLED_freed_before_its_use) {
  CUstream owner = stream();
  CUstream user = stream();
  std::uint64_t& go = word();
  const CUdeviceptr pointer = of_pool(owner);
  EXPECT_OK(cuStreamSynchronize(owner));
  EXPECT_OK(cuStreamWaitValue64(user, at(&go), 1, 0));
  EXPECT_OK(cuMemsetD8Async(pointer, 1, 8, user));
  EXPECT_OK(cuMemFreeAsync(pointer, owner));
  EXPECT_OK(cuStreamSynchronize(owner));
  store(go, 1);
  EXPECT_EQ(cuStreamSynchronize(user), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr other = 0;
  EXPECT_EQ(cuMemAlloc(&other, 8), CUDA_ERROR_ILLEGAL_ADDRESS) << "for good";
  std::_Exit(HasFailure() ? 1 : 0);  // nothing can be cleaned up
}

TEST_F(Strict, DISABLED_used_before_its_allocation) {
  CUstream owner = stream();
  CUstream user = stream();
  std::uint64_t& go = word();
  EXPECT_OK(cuStreamWaitValue64(owner, at(&go), 1, 0));
  EXPECT_OK(cuMemsetD8Async(of_pool(owner), 1, 8, user));
  EXPECT_EQ(cuStreamSynchronize(user), CUDA_ERROR_ILLEGAL_ADDRESS);
  std::_Exit(HasFailure() ? 1 : 0);
}

TEST_F(Strict, DISABLED_freed_while_a_stream_waits_for_it) {
  CUstream owner = stream();
  CUstream user = stream();
  const CUdeviceptr pointer = of_pool(owner);
  EXPECT_OK(cuStreamSynchronize(owner));
  EXPECT_OK(cuStreamWaitValue64(user, pointer, 1, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_OK(cuMemFreeAsync(pointer, owner));
  EXPECT_EQ(cuStreamSynchronize(user), CUDA_ERROR_ILLEGAL_ADDRESS);
  std::_Exit(HasFailure() ? 1 : 0);
}

TEST(IllegalAddress, is_what_a_stream_says_of_memory_that_is_gone) {
  EXPECT_EQ(run_alone("Strict.DISABLED_freed_before_its_use", {}), 0);
  EXPECT_EQ(run_alone("Strict.DISABLED_used_before_its_allocation", {}), 0);
  EXPECT_EQ(run_alone("Strict.DISABLED_freed_while_a_stream_waits_for_it", {}), 0);
}

}  // namespace
}  // namespace emucuda::test
