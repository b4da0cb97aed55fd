// SPDX-License-Identifier: Apache-2.0
// Mistakes that a real driver may let pass, or hang at: calls that wait behind a parked stream, memory that is freed
// too early.
#include <cstdlib>
#include <thread>

#include "tests/emucuda/emucuda.hpp"
#include "tests/emucuda/rig.hpp"

namespace emucuda::test {
namespace {

/// Each in a process of its own, which has a short limit and dies.
class Deadlock : public testing::Test {
 protected:
  Deadlock() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  /// The state when `stream` parks.
  struct Rig {
    CUdeviceptr pointer = 0;
    void* host = nullptr;
    CUmodule module = nullptr;
    CUstream stream = nullptr;
    CUstream other = nullptr;
  };

  template <class Call>
  static void behind_parked_stream(Call call, unsigned flags = CU_STREAM_DEFAULT) {
    ::setenv("EMUCUDA_DEADLOCK_MS", "100", 1);
    CUcontext context = nullptr;
    Rig rig;
    emucuda_register_kernel("polls", [](void**, unsigned*, unsigned*) {
      while (true) std::this_thread::yield();
    });
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    cuMemAlloc(&rig.pointer, 8);
    cuMemAllocHost(&rig.host, 8);
    cuModuleLoadData(&rig.module, "anything");
    cuStreamCreate(&rig.stream, flags);
    cuStreamCreate(&rig.other, flags);
    cuStreamWaitValue64(rig.stream, rig.pointer, 1, CU_STREAM_WAIT_VALUE_EQ);
    call(rig);
  }

  /// Like `behind_parked_stream`, with a limit for operations that are held up.
  template <class Call>
  static void beside_parked_stream(const char* setting, Call call, unsigned flags = CU_STREAM_NON_BLOCKING) {
    ::setenv("EMUCUDA_HELD_UP_MS", "100", 1);
    ::putenv(const_cast<char*>(setting));
    behind_parked_stream(call, flags);
  }
};

TEST_F(Deadlock, of_cuMemFree_is_told) {
  EXPECT_DEATH(behind_parked_stream([](const Rig& rig) { cuMemFree(rig.pointer); }),
               "emucuda: deadlock: cuMemFree waits for a stream that is parked at word 0x[0-9a-f]+, for the value 1");
}

TEST_F(Deadlock, of_cuMemAlloc_is_told) {
  EXPECT_DEATH(behind_parked_stream([](Rig rig) { cuMemAlloc(&rig.pointer, 8); }),
               "emucuda: deadlock: cuMemAlloc waits");
}

TEST_F(Deadlock, of_cuMemFreeHost_is_told) {
  EXPECT_DEATH(behind_parked_stream([](const Rig& rig) { cuMemFreeHost(rig.host); }),
               "emucuda: deadlock: cuMemFreeHost waits");
}

/// A launch of one too many waits, and holds up other threads, behind a kernel.
TEST_F(Deadlock, of_too_many_functions_of_the_host_is_told) {
  const auto give = [](const Rig& rig, int functions) {
    CUfunction function = nullptr;
    cuModuleGetFunction(&function, rig.module, "polls");
    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, rig.other, nullptr, nullptr);
    for (int i = 0; i < functions; ++i)
      cuLaunchHostFunc(
          rig.other, [](void*) {}, nullptr);
    std::_Exit(7);
  };
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  EXPECT_DEATH(behind_parked_stream([&](const Rig& rig) { give(rig, 49); }),
               "emucuda: deadlock: a launch of a function of the host waits");
  EXPECT_EXIT(behind_parked_stream([&](const Rig& rig) { give(rig, 48); }), testing::ExitedWithCode(7), "");
  ::unsetenv("CUDA_MODULE_LOADING");
}

TEST_F(Deadlock, of_cuModuleLoadData_is_told) {
  EXPECT_DEATH(behind_parked_stream([](Rig rig) { cuModuleLoadData(&rig.module, rig.host); }),
               "emucuda: deadlock: cuModuleLoadData waits");
}

TEST_F(Deadlock, of_a_kernel_that_is_loaded_late_is_told) {
  const auto load = [](const Rig& rig) {
    CUfunction function = nullptr;
    cuModuleGetFunction(&function, rig.module, "polls");
    std::_Exit(0);
  };
  EXPECT_DEATH(behind_parked_stream(load), "emucuda: deadlock: cuModuleGetFunction waits");
  EXPECT_EXIT((::setenv("CUDA_MODULE_LOADING", "EAGER", 1), behind_parked_stream(load)), testing::ExitedWithCode(0),
              "");
}

TEST_F(Deadlock, of_a_copy_on_the_legacy_stream_is_told) {
  EXPECT_DEATH(behind_parked_stream([](const Rig& rig) { cuMemcpyDtoH(rig.host, rig.pointer, 8); }),
               "emucuda: deadlock: cuMemcpyDtoH waits");
}

TEST_F(Deadlock, of_streams_that_share_a_hardware_queue_is_told) {
  const auto use_another = [](const Rig& rig) {
    cuStreamWriteValue64(rig.other, reinterpret_cast<CUdeviceptr>(rig.host), 1, 0);
    cuStreamSynchronize(rig.other);
    std::_Exit(0);
  };
  EXPECT_DEATH(
      beside_parked_stream("CUDA_DEVICE_MAX_CONNECTIONS=1", use_another),
      "emucuda: deadlock: a stream is held up by a stream that is parked at word 0x[0-9a-f]+, for the value 1: "
      "they share a hardware queue");
  EXPECT_EXIT(beside_parked_stream("CUDA_DEVICE_MAX_CONNECTIONS=2", use_another), testing::ExitedWithCode(0), "");
}

TEST_F(Deadlock, of_the_legacy_stream_and_a_blocking_one_is_told) {
  const auto use_legacy = [](const Rig& rig) {
    cuStreamWriteValue64(CU_STREAM_LEGACY, reinterpret_cast<CUdeviceptr>(rig.host), 1, 0);
    cuStreamSynchronize(CU_STREAM_LEGACY);
    std::_Exit(0);
  };
  EXPECT_DEATH(beside_parked_stream("CUDA_DEVICE_MAX_CONNECTIONS=8", use_legacy, CU_STREAM_DEFAULT),
               "emucuda: deadlock: a stream is held up by .*: one of them is the legacy default stream");
  EXPECT_EXIT(beside_parked_stream("CUDA_DEVICE_MAX_CONNECTIONS=8", use_legacy, CU_STREAM_NON_BLOCKING),
              testing::ExitedWithCode(0), "");
}

TEST_F(Deadlock, of_kernels_that_find_no_place_is_told) {
  const auto launch_two = [](const Rig& rig) {
    CUfunction function = nullptr;
    cuStreamWriteValue64(rig.other, rig.pointer, 1, 0);
    cuStreamSynchronize(rig.stream);
    cuModuleGetFunction(&function, rig.module, "polls");
    for (CUstream stream : {rig.stream, rig.other})
      cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
    cuStreamSynchronize(rig.other);
  };
  EXPECT_DEATH(beside_parked_stream("EMUCUDA_RESIDENT=1", launch_two),
               "emucuda: deadlock: a kernel is held up by others, which hold the whole device");
}

// --- freed memory ----------------------------------------------------------------------------------------------------

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
