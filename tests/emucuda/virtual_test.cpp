// SPDX-License-Identifier: Apache-2.0
// Virtual memory management and pools, within one process.
#include "tests/emucuda/rig.hpp"

namespace emucuda::test {
namespace {

constexpr std::size_t kChunk = std::size_t{2} << 20;

class Virtual : public Gpu {
 protected:
  CUmemGenericAllocationHandle create() {
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    std::size_t granularity = 0;
    EXPECT_OK(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    EXPECT_EQ(granularity, kChunk);
    EXPECT_EQ(cuMemCreate(&handle, granularity / 2, &properties, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemCreate(&handle, granularity, &properties, 0));
    return handle;
  }

  CUmemAccessDesc access_{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
};

TEST_F(Virtual, memory_needs_a_mapping_and_access) {
  CUdeviceptr pointer = 0;
  ASSERT_OK(cuMemAddressReserve(&pointer, 2 * kChunk, 0, 0, 0));
  EXPECT_EQ(cuMemsetD8(pointer, 1, 1), CUDA_ERROR_INVALID_VALUE) << "only reserved";
  const auto first = create();
  const auto second = create();
  ASSERT_OK(cuMemMap(pointer, kChunk, 0, first, 0));
  ASSERT_OK(cuMemMap(pointer + kChunk, kChunk, 0, second, 0));
  EXPECT_EQ(cuMemMap(pointer, kChunk, 0, second, 0), CUDA_ERROR_INVALID_VALUE) << "mapped already";
  char byte = 0;
  EXPECT_EQ(cuMemcpyDtoH(&byte, pointer, 1), CUDA_ERROR_INVALID_VALUE) << "no access yet";
  EXPECT_EQ(cuStreamWriteValue64(stream(), pointer, 1, 0), CUDA_ERROR_INVALID_VALUE) << "no access yet";
  ASSERT_OK(cuMemSetAccess(pointer, 2 * kChunk, &access_, 1));

  // One copy over both.
  std::vector<std::uint8_t> data(4096, 7);
  EXPECT_OK(cuMemcpyHtoD(pointer + kChunk - 2048, data.data(), data.size()));
  EXPECT_OK(cuCtxSynchronize()) << "it may be under way still";
  EXPECT_EQ(bytes_of(pointer + kChunk - 2048, data.size()), data);

  EXPECT_OK(cuMemRelease(first));
  EXPECT_EQ(cuMemRelease(first), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(bytes_of(pointer + kChunk - 8, 8), std::vector<std::uint8_t>(8, 7)) << "a mapping keeps its memory";
  EXPECT_EQ(cuMemAddressFree(pointer, 2 * kChunk), CUDA_ERROR_INVALID_VALUE) << "still mapped";
  EXPECT_OK(cuMemUnmap(pointer, 2 * kChunk));
  EXPECT_OK(cuMemRelease(second));
  EXPECT_OK(cuMemAddressFree(pointer, 2 * kChunk));
}

TEST_F(Virtual, a_handle_can_be_had_from_its_mapping) {
  CUdeviceptr pointer = 0;
  ASSERT_OK(cuMemAddressReserve(&pointer, kChunk, 0, 0, 0));
  const auto handle = create();
  ASSERT_OK(cuMemMap(pointer, kChunk, 0, handle, 0));
  CUmemGenericAllocationHandle again = 0;
  EXPECT_OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(pointer + 5)));
  int descriptor = -1;
  EXPECT_EQ(cuMemExportToShareableHandle(&descriptor, again, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE)
      << "it was not asked for";
  int capable = 1;
  EXPECT_OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pointer));
  EXPECT_EQ(capable, 0);
  EXPECT_OK(cuMemRelease(again));
  EXPECT_OK(cuMemRelease(handle));
  EXPECT_OK(cuMemUnmap(pointer, kChunk));
  EXPECT_OK(cuMemAddressFree(pointer, kChunk));
}

TEST_F(Virtual, there_is_no_dma_buf) {
  int descriptor = -1;
  EXPECT_EQ(cuMemGetHandleForAddressRange(&descriptor, memory(8), 8, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
            CUDA_ERROR_NOT_SUPPORTED);
}

using Pools = Gpu;

TEST_F(Pools, memory_is_there_between_its_turns) {
  CUstream s = stream();
  CUdeviceptr pointer = 0;
  ASSERT_OK(cuMemAllocAsync(&pointer, 16, s));
  EXPECT_OK(cuMemsetD32Async(pointer, 3, 4, s));
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(word_of(pointer), 0x300000003u);
  CUmemoryPool pool = nullptr;
  CUmemoryPool of_pointer = nullptr;
  EXPECT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
  EXPECT_OK(cuPointerGetAttribute(&of_pointer, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer));
  EXPECT_EQ(pool, of_pointer);
  EXPECT_OK(cuMemFreeAsync(pointer, s));
  EXPECT_EQ(cuMemFreeAsync(pointer, s), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(cuMemsetD8(pointer, 1, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Pools, that_are_current_are_allocated_from) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  CUmemoryPool found = nullptr;
  CUmemoryPool standard = nullptr;
  CUdeviceptr pointer = 0;
  CUstream s = stream();
  int descriptor = -1;
  ASSERT_OK(cuMemPoolCreate(&pool, &properties));
  EXPECT_EQ(cuDeviceSetMemPool(1, pool), CUDA_ERROR_INVALID_VALUE) << "of another device";
  EXPECT_OK(cuDeviceSetMemPool(0, pool));
  ASSERT_OK(cuMemAllocAsync(&pointer, 16, s));
  EXPECT_OK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer));
  EXPECT_EQ(found, pool);
  EXPECT_OK(cuMemFreeAsync(pointer, s));
  EXPECT_EQ(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE)
      << "it was not asked for";
  EXPECT_OK(cuMemPoolDestroy(pool));
  EXPECT_OK(cuDeviceGetMemPool(&found, 0));
  EXPECT_OK(cuDeviceGetDefaultMemPool(&standard, 0));
  EXPECT_EQ(found, standard) << "the current one was destroyed";
  EXPECT_EQ(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
}

TEST(RecycledPools, are_there_where_they_are_asked_for) {
  EXPECT_EQ(run_alone("Pools.DISABLED_recycled", {"EMUCUDA_POOLS_RECYCLE=1"}), 0);
}

TEST_F(Pools, DISABLED_recycled) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool first = nullptr;
  CUmemoryPool again = nullptr;
  CUstream s = stream();
  const auto allocate = [&](std::size_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_OK(cuMemAllocFromPoolAsync(&pointer, bytes, first, s));
    return pointer;
  };
  const auto id_of = [](CUdeviceptr pointer) {
    unsigned long long id = 0;
    EXPECT_OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
    return id;
  };
  ASSERT_OK(cuMemPoolCreate(&first, &properties));
  const CUdeviceptr one = allocate(64);
  const CUdeviceptr other = allocate(64);
  EXPECT_EQ(id_of(one), id_of(other)) << "the pool's";
  EXPECT_OK(cuMemFreeAsync(one, s));
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(allocate(32), one);
  EXPECT_OK(cuMemPoolDestroy(first));
  ASSERT_OK(cuMemPoolCreate(&again, &properties));
  EXPECT_EQ(again, first);
  EXPECT_OK(cuMemsetD8Async(other, 1, 64, s)) << "memory outlives its pool";
  EXPECT_OK(cuStreamSynchronize(s));
}

}  // namespace
}  // namespace emucuda::test
