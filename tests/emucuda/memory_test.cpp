// SPDX-License-Identifier: Apache-2.0
// Memory of devices and of the host, and what pointers are.
#include <sys/mman.h>

#include <algorithm>

#include "tests/emucuda/rig.hpp"

namespace emucuda::test {
namespace {

constexpr std::size_t kPage = 4096;

using Memory = Gpu;

TEST_F(Memory, is_poisoned_when_it_is_fresh) {
  const auto bytes = bytes_of(memory(1000), 1000);
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0xDB; }));
}

TEST_F(Memory, cannot_be_touched_by_the_cpu) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const CUdeviceptr pointer = memory(8);
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(pointer) = 1, "");
}

TEST_F(Memory, ends_where_it_ends) {
  const CUdeviceptr pointer = memory(100);
  EXPECT_EQ(cuMemsetD8(pointer, 1, 101), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8(pointer + 100, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemsetD8(pointer + 99, 1, 1));
}

TEST_F(Memory, a_freed_pointer_is_nothing) {
  CUdeviceptr pointer = 0;
  char byte = 0;
  ASSERT_OK(cuMemAlloc(&pointer, 8));
  EXPECT_EQ(cuMemFree(pointer + 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemFree(pointer));
  EXPECT_EQ(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH(&byte, pointer, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpy(reinterpret_cast<CUdeviceptr>(&byte), pointer, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, of_another_device_needs_peer_access) {
  CUcontext other = nullptr;
  ASSERT_OK(cuDevicePrimaryCtxRetain(&other, 1));
  ASSERT_OK(cuCtxPushCurrent(other));
  CUdeviceptr there = 0;
  ASSERT_OK(cuMemAlloc(&there, 8));
  ASSERT_OK(cuCtxPopCurrent(nullptr));
  EXPECT_EQ(cuStreamWriteValue64(stream(), there, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemcpyDtoD(there, memory(8), 8)) << "copies go through the driver";
  CUdeviceptr seen = 0;
  const auto for_kernels = [&] { return cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, there); };
  EXPECT_EQ(for_kernels(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuCtxEnablePeerAccess(other, 0));
  EXPECT_EQ(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_OK(for_kernels());
  EXPECT_EQ(seen, there);
  EXPECT_OK(cuStreamWriteValue64(stream(), there, 1, 0));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_OK(cuCtxDisablePeerAccess(other));
  EXPECT_OK(cuMemFree(there));
  EXPECT_OK(cuDevicePrimaryCtxRelease(1));
}

class Registered : public Gpu {
 public:
  ~Registered() override { std::free(pages_); }

 protected:
  char* pages() { return pages_; }

 private:
  char* pages_ = static_cast<char*>(std::aligned_alloc(kPage, 4 * kPage));
};

TEST_F(Registered, pages_are_registered_once) {
  ASSERT_OK(cuMemHostRegister(pages() + 100, 100, 0));
  EXPECT_EQ(cuMemHostRegister(pages() + 300, 100, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_OK(cuMemHostRegister(pages() + kPage, 100, 0));
  EXPECT_EQ(cuMemHostUnregister(pages()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_OK(cuMemHostUnregister(pages() + 100));
  EXPECT_OK(cuMemHostUnregister(pages() + kPage));
}

TEST_F(Registered, has_the_same_address_on_the_device) {
  CUdeviceptr pointer = 0;
  EXPECT_EQ(cuMemHostGetDevicePointer(&pointer, pages(), 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_OK(cuMemHostRegister(pages(), kPage, CU_MEMHOSTREGISTER_DEVICEMAP));
  EXPECT_OK(cuMemHostGetDevicePointer(&pointer, pages() + 8, 0));
  EXPECT_EQ(pointer, at(pages() + 8));
  EXPECT_OK(cuMemHostUnregister(pages()));
}

TEST_F(Registered, half_registered_memory_cannot_be_copied) {
  ASSERT_OK(cuMemHostRegister(pages(), kPage, 0));
  EXPECT_EQ(cuMemcpyHtoD(memory(2 * kPage), pages(), 2 * kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemHostUnregister(pages()));
}

#ifndef __SANITIZE_THREAD__
/// A stale registration cannot be detected: a copy moves the old pages, which no mapping has any more.
TEST_F(Registered, memory_that_is_shared_keeps_its_pages) {
  const auto map = [](void* at, int fixed) {
    return ::mmap(at, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | fixed, -1, 0);
  };
  auto* const bytes = static_cast<char*>(map(nullptr, 0));
  ASSERT_NE(bytes, MAP_FAILED);
  bytes[0] = 1;
  ASSERT_OK(cuMemHostRegister(bytes, kPage, 0));
  ASSERT_EQ(::munmap(bytes, kPage), 0);
  ASSERT_EQ(map(bytes, MAP_FIXED_NOREPLACE), bytes);
  bytes[0] = 2;
  char seen = 0;
  const CUdeviceptr device = memory(1);
  EXPECT_OK(cuMemcpyHtoD(device, bytes, 1));
  EXPECT_OK(cuMemcpyDtoH(&seen, device, 1));
  EXPECT_EQ(seen, 1);
  EXPECT_OK(cuMemHostUnregister(bytes));
  EXPECT_OK(cuMemcpyHtoD(device, bytes, 1));
  EXPECT_OK(cuMemcpyDtoH(&seen, device, 1));
  EXPECT_EQ(seen, 2);
  ::munmap(bytes, kPage);
}
#endif

using Pointers = Gpu;

template <class T>
T attribute(CUdeviceptr pointer, CUpointer_attribute which) {
  T value{};
  EXPECT_OK(cuPointerGetAttribute(&value, which, pointer));
  return value;
}

TEST_F(Pointers, of_a_device) {
  const CUdeviceptr pointer = memory(100);
  EXPECT_EQ(attribute<unsigned>(pointer + 5, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(attribute<CUdeviceptr>(pointer + 5, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), pointer);
  EXPECT_EQ(attribute<std::size_t>(pointer + 5, CU_POINTER_ATTRIBUTE_RANGE_SIZE), 100u);
  EXPECT_EQ(attribute<int>(pointer, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
  EXPECT_EQ(attribute<int>(pointer, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE), 1);
  EXPECT_EQ(attribute<CUcontext>(pointer, CU_POINTER_ATTRIBUTE_CONTEXT), context());
  EXPECT_NE(attribute<unsigned long long>(pointer, CU_POINTER_ATTRIBUTE_BUFFER_ID),
            attribute<unsigned long long>(memory(1), CU_POINTER_ATTRIBUTE_BUFFER_ID));
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  EXPECT_OK(cuMemGetAddressRange(&base, &bytes, pointer + 99));
  EXPECT_EQ(base, pointer);
  EXPECT_EQ(bytes, 100u);
}

TEST_F(Pointers, of_the_host) {
  std::uint64_t local = 0;
  unsigned type = 99;
  EXPECT_EQ(attribute<unsigned>(at(&word()), CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_HOST);
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at(&local)), CUDA_ERROR_INVALID_VALUE);
  CUpointer_attribute which = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* data = &type;
  EXPECT_OK(cuPointerGetAttributes(1, &which, &data, at(&local)));
  EXPECT_EQ(type, 0u);
}

TEST_F(Pointers, sync_memops_is_remembered) {
  const CUdeviceptr pointer = memory(8);
  const unsigned yes = 1;
  EXPECT_OK(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
  EXPECT_EQ(attribute<unsigned>(pointer, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), 1u);
}

}  // namespace
}  // namespace emucuda::test
