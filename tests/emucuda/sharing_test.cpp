// SPDX-License-Identifier: Apache-2.0
// Memory that two processes share: legacy handles, descriptors of physical memory, exported pools. The parent makes it,
// the child looks at it and writes into it, the parent sees that.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/emucuda/rig.hpp"

namespace emucuda::test {
namespace {

constexpr std::size_t kBytes = std::size_t{2} << 20;
constexpr std::uint64_t kFromParent = 0x1111;
constexpr std::uint64_t kFromChild = 0x2222;

template <class T>
std::string hex(const T& value) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&value);
  std::string text;
  char digits[3];
  for (std::size_t i = 0; i < sizeof(T); ++i) text += (std::snprintf(digits, sizeof(digits), "%02x", bytes[i]), digits);
  return text;
}

template <class T>
T unhex(const std::string& text) {
  T value{};
  auto* const bytes = reinterpret_cast<unsigned char*>(&value);
  for (std::size_t i = 0; i < sizeof(T) && 2 * i + 1 < text.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return value;
}

class Sharing : public Gpu {
 protected:
  /// What the child does with memory, however it came by it.
  void answer(CUdeviceptr pointer) {
    CUstream s = stream();
    EXPECT_OK(cuStreamWaitValue64(s, pointer, kFromParent, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_OK(cuStreamWriteValue64(s, pointer, kFromChild, 0));
    EXPECT_OK(cuStreamSynchronize(s));
  }

  /// The parent's side of it. `more` is how the child gets at the memory.
  void ask(const std::string& child, CUdeviceptr pointer, const std::vector<std::string>& more) {
    CUstream s = stream();
    EXPECT_OK(cuStreamWriteValue64(s, pointer, kFromParent, 0));
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_EQ(run_alone("Sharing.DISABLED_" + child, more), 0);
    EXPECT_EQ(word_of(pointer), kFromChild);
  }

  static std::string inherited(int descriptor) {
    ::fcntl(descriptor, F_SETFD, 0);
    return "EMUCUDA_TEST_FD=" + std::to_string(descriptor);
  }
  static void* descriptor() { return reinterpret_cast<void*>(std::strtol(asked("EMUCUDA_TEST_FD"), nullptr, 10)); }
};

TEST_F(Sharing, by_legacy_handles) {
  const CUdeviceptr pointer = memory(100);
  CUipcMemHandle handle{};
  ASSERT_OK(cuIpcGetMemHandle(&handle, pointer + 8)) << "of the whole allocation";
  CUdeviceptr again = 0;
  EXPECT_EQ(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT);
  ask("open", pointer, {"EMUCUDA_TEST_HANDLE=" + hex(handle)});
}

TEST_F(Sharing, DISABLED_open) {
  const auto handle = unhex<CUipcMemHandle>(asked("EMUCUDA_TEST_HANDLE"));
  CUdeviceptr pointer = 0;
  CUdeviceptr again = 0;
  ASSERT_OK(cuIpcOpenMemHandle(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT_OK(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT_EQ(pointer, again) << "opened twice, it is the same";
  CUipcMemHandle other{};
  EXPECT_EQ(cuIpcGetMemHandle(&other, pointer), CUDA_ERROR_INVALID_VALUE) << "not its own";
  EXPECT_EQ(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuIpcCloseMemHandle(pointer));
  answer(pointer);
  EXPECT_OK(cuIpcCloseMemHandle(pointer));
  EXPECT_EQ(cuIpcCloseMemHandle(pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Sharing, a_handle_dies_with_its_memory) {
  CUipcMemHandle handle{};
  CUdeviceptr pointer = 0;
  ASSERT_OK(cuMemAlloc(&pointer, 8));
  ASSERT_OK(cuIpcGetMemHandle(&handle, pointer));
  ASSERT_OK(cuMemFree(pointer));
  EXPECT_EQ(run_alone("Sharing.DISABLED_open_stale", {"EMUCUDA_TEST_HANDLE=" + hex(handle)}), 0);
}

TEST_F(Sharing, DISABLED_open_stale) {
  CUdeviceptr pointer = 0;
  const auto handle = unhex<CUipcMemHandle>(asked("EMUCUDA_TEST_HANDLE"));
  EXPECT_EQ(cuIpcOpenMemHandle(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_HANDLE);
}

// --- physical memory -------------------------------------------------------------------------------------------------

CUdeviceptr map(CUmemGenericAllocationHandle handle) {
  CUdeviceptr pointer = 0;
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_OK(cuMemAddressReserve(&pointer, kBytes, 0, 0, 0));
  EXPECT_OK(cuMemMap(pointer, kBytes, 0, handle, 0));
  EXPECT_OK(cuMemSetAccess(pointer, kBytes, &access, 1));
  return pointer;
}

void unmap(CUdeviceptr pointer) {
  EXPECT_OK(cuMemUnmap(pointer, kBytes));
  EXPECT_OK(cuMemAddressFree(pointer, kBytes));
}

TEST_F(Sharing, by_descriptors) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_OK(cuMemCreate(&handle, kBytes, &properties, 0));
  const CUdeviceptr pointer = map(handle);
  int descriptor = -1;
  ASSERT_OK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ask("import", pointer, {inherited(descriptor)});
  EXPECT_EQ(::close(descriptor), 0);
  EXPECT_OK(cuMemRelease(handle));
  unmap(pointer);
}

TEST_F(Sharing, DISABLED_import) {
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_OK(cuMemImportFromShareableHandle(&handle, descriptor(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  EXPECT_EQ(::close(static_cast<int>(reinterpret_cast<std::intptr_t>(descriptor()))), 0) << "it stays the caller's";
  CUmemAllocationProp properties{};
  EXPECT_OK(cuMemGetAllocationPropertiesFromHandle(&properties, handle));
  EXPECT_EQ(properties.location.id, 0);
  const CUdeviceptr pointer = map(handle);
  EXPECT_OK(cuMemRelease(handle));
  answer(pointer);
  unmap(pointer);
}

// --- pools -----------------------------------------------------------------------------------------------------------

TEST_F(Sharing, by_pools) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  CUdeviceptr pointer = 0;
  CUmemPoolPtrExportData data{};
  int descriptor = -1;
  CUstream s = stream();
  ASSERT_OK(cuMemPoolCreate(&pool, &properties));
  ASSERT_OK(cuMemAllocFromPoolAsync(&pointer, 64, pool, s));
  ASSERT_OK(cuStreamSynchronize(s));
  ASSERT_OK(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ASSERT_OK(cuMemPoolExportPointer(&data, pointer));
  ask("import_pool", pointer, {inherited(descriptor), "EMUCUDA_TEST_HANDLE=" + hex(data)});
  EXPECT_EQ(::close(descriptor), 0);
  EXPECT_OK(cuMemFreeAsync(pointer, s));
  EXPECT_OK(cuMemPoolDestroy(pool));
}

TEST_F(Sharing, DISABLED_import_pool) {
  auto data = unhex<CUmemPoolPtrExportData>(asked("EMUCUDA_TEST_HANDLE"));
  CUmemoryPool pool = nullptr;
  CUdeviceptr pointer = 0;
  ASSERT_OK(cuMemPoolImportFromShareableHandle(&pool, descriptor(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ASSERT_OK(cuMemPoolImportPointer(&pointer, pool, &data));
  CUdeviceptr other = 0;
  EXPECT_EQ(cuMemAllocFromPoolAsync(&other, 8, pool, stream()), CUDA_ERROR_INVALID_VALUE);
  answer(pointer);
  EXPECT_OK(cuMemFree(pointer));
  EXPECT_OK(cuMemPoolDestroy(pool));
}

}  // namespace
}  // namespace emucuda::test
