// SPDX-License-Identifier: Apache-2.0
// Start, devices, contexts, names.
#include <dlfcn.h>

#include <cstring>
#include <thread>

#include "tests/emucuda/rig.hpp"

namespace emucuda::test {
namespace {

TEST(Start, nothing_works_before_cuInit) { EXPECT_EQ(run_alone("Start.DISABLED_no_init", {}), 0); }

TEST(Start, DISABLED_no_init) {
  int value = 0;
  EXPECT_EQ(cuDeviceGetCount(&value), CUDA_ERROR_NOT_INITIALIZED);
  CUcontext context = nullptr;
  EXPECT_EQ(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_OK(cuDriverGetVersion(&value));
  EXPECT_EQ(value, CUDA_VERSION);
}

TEST(Start, without_devices_there_is_no_driver) {
  EXPECT_EQ(run_alone("Start.DISABLED_no_device", {"EMUCUDA_DEVICES=0"}), 0);
}

TEST(Start, DISABLED_no_device) { EXPECT_EQ(cuInit(0), CUDA_ERROR_NO_DEVICE); }

TEST(Start, with_kernels_that_are_not_there_fails) {
  EXPECT_EQ(run_alone("Start.DISABLED_no_kernels", {"EMUCUDA_KERNELS=/dev/null"}), 0);
}

TEST(Start, DISABLED_no_kernels) { EXPECT_EQ(cuInit(0), CUDA_ERROR_INVALID_VALUE); }

TEST(Start, a_hidden_device_keeps_its_identity) {
  CUuuid uuid{};
  ASSERT_OK(cuInit(0));
  ASSERT_OK(cuDeviceGetUuid(&uuid, 1));
  std::string hex;
  for (const char byte : uuid.bytes) hex += std::to_string(static_cast<int>(byte)) + ".";
  EXPECT_EQ(run_alone("Start.DISABLED_second_device", {"CUDA_VISIBLE_DEVICES=1", "EMUCUDA_TEST_UUID=" + hex}), 0);
}

TEST(Start, DISABLED_second_device) {
  CUuuid uuid{};
  int count = 0;
  ASSERT_OK(cuInit(0));
  EXPECT_OK(cuDeviceGetCount(&count));
  EXPECT_EQ(count, 1);
  ASSERT_OK(cuDeviceGetUuid(&uuid, 0));
  std::string hex;
  for (const char byte : uuid.bytes) hex += std::to_string(static_cast<int>(byte)) + ".";
  EXPECT_EQ(hex, asked("EMUCUDA_TEST_UUID"));
}

TEST(Start, not_in_a_forked_child) {
  GTEST_FLAG_SET(death_test_style, "fast");
  ASSERT_OK(cuInit(0));
  int count = 0;
  EXPECT_EXIT(_exit(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1), testing::ExitedWithCode(0), "");
}

using Device = Gpu;

int attribute(CUdevice_attribute which) {
  int value = -1;
  EXPECT_OK(cuDeviceGetAttribute(&value, which, 0));
  return value;
}

TEST_F(Device, tells_what_it_can) {
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES), 0);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 9);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED), 0);
  char name[64];
  EXPECT_OK(cuDeviceGetName(name, sizeof(name), 0));
  EXPECT_STREQ(name, "Emulated GPU");
}

TEST_F(Device, peers_are_the_others) {
  int can = -1;
  EXPECT_OK(cuDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  EXPECT_OK(cuDeviceCanAccessPeer(&can, 0, 0));
  EXPECT_EQ(can, 0);
  EXPECT_EQ(cuDeviceCanAccessPeer(&can, 0, 2), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(Device, peers_are_none_where_that_was_set) {
  EXPECT_EQ(run_alone("Device.DISABLED_without_peers", {"EMUCUDA_PEERS=0"}), 0);
}

TEST_F(Device, DISABLED_without_peers) {
  int can = -1;
  EXPECT_OK(cuDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 0);
  EXPECT_OK(cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  EXPECT_EQ(can, 0);
  CUcontext other = nullptr;
  ASSERT_OK(cuDevicePrimaryCtxRetain(&other, 1));
  EXPECT_EQ(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  EXPECT_OK(cuDevicePrimaryCtxRelease(1));
}

TEST_F(Device, bus_id_finds_it_again) {
  char text[32];
  CUdevice device = -1;
  ASSERT_OK(cuDeviceGetPCIBusId(text, sizeof(text), 1));
  EXPECT_OK(cuDeviceGetByPCIBusId(&device, text));
  EXPECT_EQ(device, 1);
}

using Contexts = Gpu;

TEST_F(Contexts, each_thread_has_its_own_stack) {
  std::thread([this] {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuMemAlloc(&pointer, 8), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_OK(cuCtxSetCurrent(context()));
    CUdevice device = -1;
    EXPECT_OK(cuCtxGetDevice(&device));
    EXPECT_EQ(device, 0);
  }).join();
}

TEST_F(Contexts, push_and_pop) {
  CUcontext other = nullptr;
  CUcontext popped = nullptr;
  CUdevice device = -1;
  ASSERT_OK(cuDevicePrimaryCtxRetain(&other, 1));
  EXPECT_OK(cuCtxPushCurrent(other));
  EXPECT_OK(cuCtxGetDevice(&device));
  EXPECT_EQ(device, 1);
  EXPECT_OK(cuCtxPopCurrent(&popped));
  EXPECT_EQ(popped, other);
  EXPECT_OK(cuCtxGetCurrent(&popped));
  EXPECT_EQ(popped, context());
  EXPECT_OK(cuDevicePrimaryCtxRelease(1));
}

TEST_F(Contexts, end_with_the_last_release) {
  CUcontext other = nullptr;
  unsigned flags = 0;
  int active = -1;
  ASSERT_OK(cuDevicePrimaryCtxRetain(&other, 1));
  EXPECT_OK(cuDevicePrimaryCtxRelease(1));
  EXPECT_OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
  EXPECT_EQ(active, 0);
  EXPECT_EQ(cuDevicePrimaryCtxRelease(1), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxPushCurrent(other), CUDA_ERROR_INVALID_CONTEXT);
}

// --- names -----------------------------------------------------------------------------------------------------------

using GetProc = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

TEST(Names, are_resolved_as_the_library_does_it) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto get = reinterpret_cast<GetProc>(dlsym(library, "cuGetProcAddress_v2"));
  ASSERT_NE(get, nullptr);
  void* function = nullptr;
  CUdriverProcAddressQueryResult result{};
  EXPECT_OK(get("cuMemAlloc", &function, 12000, 0, &result));
  EXPECT_EQ(result, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(function, dlsym(library, "cuMemAlloc_v2"));
  EXPECT_EQ(get("cuNothing", &function, 12000, 0, &result), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(result, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(get("cuStreamGetDevice", &function, 12000, 0, &result), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(result, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_NE(dlsym(library, "cuGetProcAddress"), nullptr);
  dlclose(library);
}

TEST(Names, of_errors) {
  const char* text = nullptr;
  EXPECT_OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(998), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

}  // namespace
}  // namespace emucuda::test
