// SPDX-License-Identifier: Apache-2.0
// Memory that two processes share: legacy handles, descriptors of physical memory, exported pools. The parent makes it,
// the child looks at it and writes into it, the parent sees that.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "tests/emucuda/rig.hpp"

namespace emucuda::test {
namespace {

constexpr std::size_t kShared = std::size_t{2} << 20;
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
  /// The child's use of memory, whichever way it was shared.
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
    EXPECT_EQ(run_alone(std::string("*.DISABLED_") + child, more), 0);
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

TEST_F(Sharing, is_refused_where_that_was_set) {
  CUipcMemHandle handle{};
  ASSERT_OK(cuIpcGetMemHandle(&handle, memory(8)));
  const std::string named = "EMUCUDA_TEST_HANDLE=" + hex(handle);
  EXPECT_EQ(run_alone("Sharing.DISABLED_refused", {named, "EMUCUDA_IMPORTS=0"}), 0);
}

TEST_F(Sharing, DISABLED_refused) {
  CUdeviceptr pointer = 0;
  CUmemGenericAllocationHandle physical = 0;
  CUmemoryPool pool = nullptr;
  constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const auto handle = unhex<CUipcMemHandle>(asked("EMUCUDA_TEST_HANDLE"));
  EXPECT_EQ(cuIpcOpenMemHandle(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_MAP_FAILED);
  EXPECT_EQ(cuMemImportFromShareableHandle(&physical, nullptr, kDescriptor), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(cuMemPoolImportFromShareableHandle(&pool, nullptr, kDescriptor, 0), CUDA_ERROR_NOT_PERMITTED);
}

// --- physical memory -------------------------------------------------------------------------------------------------

CUdeviceptr map(CUmemGenericAllocationHandle handle) {
  CUdeviceptr pointer = 0;
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_OK(cuMemAddressReserve(&pointer, kShared, 0, 0, 0));
  EXPECT_OK(cuMemMap(pointer, kShared, 0, handle, 0));
  EXPECT_OK(cuMemSetAccess(pointer, kShared, &access, 1));
  return pointer;
}

void unmap(CUdeviceptr pointer) {
  EXPECT_OK(cuMemUnmap(pointer, kShared));
  EXPECT_OK(cuMemAddressFree(pointer, kShared));
}

TEST_F(Sharing, by_descriptors) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_OK(cuMemCreate(&handle, kShared, &properties, 0));
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

class SharedPools : public Sharing {
 protected:
  static CUmemoryPool new_pool() {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemoryPool pool = nullptr;
    EXPECT_OK(cuMemPoolCreate(&pool, &properties));
    return pool;
  }

  static int export_pool(CUmemoryPool pool) {
    int descriptor = -1;
    EXPECT_OK(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return descriptor;
  }

  /// Arguments that a child needs for a piece of a pool.
  static std::vector<std::string> piece(int descriptor, CUdeviceptr pointer) {
    CUmemPoolPtrExportData data{};
    EXPECT_OK(cuMemPoolExportPointer(&data, pointer));
    return {inherited(descriptor), "EMUCUDA_TEST_HANDLE=" + hex(data)};
  }

  static CUmemoryPool import_pool() {
    CUmemoryPool pool = nullptr;
    EXPECT_OK(cuMemPoolImportFromShareableHandle(&pool, descriptor(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return pool;
  }

  static CUresult import_piece(CUdeviceptr& pointer, CUmemoryPool pool) {
    auto data = unhex<CUmemPoolPtrExportData>(asked("EMUCUDA_TEST_HANDLE"));
    return cuMemPoolImportPointer(&pointer, pool, &data);
  }

  static CUmemAccessDesc access(int device, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
  }
};

TEST_F(SharedPools, are_imported_and_then_their_pieces) {
  CUstream s = stream();
  CUmemoryPool pool = new_pool();
  CUdeviceptr pointer = 0;
  CUmemPoolPtrExportData data{};
  ASSERT_OK(cuMemAllocFromPoolAsync(&pointer, 64, pool, s));
  ASSERT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(cuMemPoolExportPointer(&data, pointer), CUDA_ERROR_INVALID_VALUE) << "the pool was not exported";
  const int descriptor = export_pool(pool);
  EXPECT_EQ(cuMemPoolExportPointer(&data, pointer + 8), CUDA_ERROR_INVALID_VALUE) << "not where it begins";
  ask("import_pool", pointer, piece(descriptor, pointer));
  EXPECT_EQ(::close(descriptor), 0);
  EXPECT_OK(cuMemFreeAsync(pointer, s));
  EXPECT_EQ(cuMemPoolExportPointer(&data, pointer), CUDA_ERROR_INVALID_VALUE) << "it is being freed";
  EXPECT_OK(cuMemPoolDestroy(pool));
}

TEST_F(SharedPools, DISABLED_import_pool) {
  CUmemoryPool pool = import_pool();
  EXPECT_EQ(import_pool(), pool) << "a process has it once";
  CUdeviceptr pointer = 0;
  CUdeviceptr other = 0;
  CUmemPoolPtrExportData data{};
  int descriptor = -1;
  ASSERT_OK(import_piece(pointer, pool));
  EXPECT_EQ(import_piece(other, pool), CUDA_ERROR_ALREADY_MAPPED);
  EXPECT_EQ(cuMemAllocFromPoolAsync(&other, 8, pool, stream()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceSetMemPool(0, pool), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemPoolExportPointer(&data, pointer), CUDA_ERROR_INVALID_VALUE);
  answer(pointer);
  EXPECT_OK(cuMemFree(pointer));
  EXPECT_OK(import_piece(pointer, pool)) << "once it is gone";
  EXPECT_OK(cuMemFreeAsync(pointer, stream()));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_OK(cuMemPoolDestroy(pool));
  EXPECT_EQ(import_piece(pointer, pool), CUDA_ERROR_INVALID_VALUE);
}

/// A pool that others were let into here lets in its own device alone elsewhere.
TEST_F(SharedPools, are_reached_by_the_devices_that_the_importer_lets_in) {
  CUstream s = stream();
  CUmemoryPool pool = new_pool();
  CUdeviceptr pointer = 0;
  CUmemAccess_flags flags{};
  CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  const CUmemAccessDesc both[] = {access(1), access(0, CU_MEM_ACCESS_FLAGS_PROT_NONE)};
  EXPECT_EQ(cuMemPoolSetAccess(pool, both, 2), CUDA_ERROR_INVALID_DEVICE) << "its own keeps it";
  EXPECT_OK(cuMemPoolGetAccess(&flags, pool, &device));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE) << "all of a list or nothing";
  EXPECT_OK(cuMemPoolSetAccess(pool, both, 1));
  EXPECT_OK(cuMemPoolGetAccess(&flags, pool, &device));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_OK(cuMemAllocFromPoolAsync(&pointer, 64, pool, s));
  ASSERT_OK(cuStreamSynchronize(s));
  const int descriptor = export_pool(pool);
  for (const char* visible : {"1,0", "1"}) {  // the child's device 0 is the other one
    auto environment = piece(descriptor, pointer);
    environment.push_back(std::string("CUDA_VISIBLE_DEVICES=") + visible);
    ask("import_elsewhere", pointer, environment);
  }
  EXPECT_EQ(::close(descriptor), 0);
  EXPECT_OK(cuMemFreeAsync(pointer, s));
  EXPECT_OK(cuMemPoolDestroy(pool));
}

TEST_F(SharedPools, DISABLED_import_elsewhere) {
  CUmemoryPool pool = import_pool();
  CUdeviceptr pointer = 0;
  ASSERT_OK(import_piece(pointer, pool));
  EXPECT_EQ(cuStreamWriteValue64(stream(), pointer, 1, 0), CUDA_ERROR_INVALID_VALUE);
  const CUmemAccessDesc here = access(0);
  EXPECT_OK(cuMemPoolSetAccess(pool, &here, 1));
  answer(pointer);
  EXPECT_OK(cuMemFree(pointer));
  EXPECT_OK(cuMemPoolDestroy(pool));
}

TEST_F(SharedPools, give_their_own_pieces_only) {
  CUstream s = stream();
  CUmemoryPool pool = new_pool();
  CUmemoryPool other = new_pool();
  CUdeviceptr pointer = 0;
  ASSERT_OK(cuMemAllocFromPoolAsync(&pointer, 64, pool, s));
  const int descriptor = export_pool(pool);
  const int others = export_pool(other);
  EXPECT_EQ(run_alone("SharedPools.DISABLED_import_nothing", piece(others, pointer)), 0);
  const auto stale = piece(descriptor, pointer);
  EXPECT_OK(cuMemFreeAsync(pointer, s));
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(run_alone("SharedPools.DISABLED_import_nothing", stale), 0);
  for (const int one : {descriptor, others}) EXPECT_EQ(::close(one), 0);
  for (CUmemoryPool one : {pool, other}) EXPECT_OK(cuMemPoolDestroy(one));
}

TEST_F(SharedPools, DISABLED_import_nothing) {
  CUdeviceptr pointer = 0;
  EXPECT_EQ(import_piece(pointer, import_pool()), CUDA_ERROR_INVALID_VALUE);
}

/// Exporting and importing wait for nothing; use does.
TEST_F(SharedPools, cannot_be_used_before_the_owner_has_come_to_the_allocation) {
  CUstream s = stream();
  std::uint64_t& go = word();
  CUmemoryPool pool = new_pool();
  CUdeviceptr pointer = 0;
  EXPECT_OK(cuStreamWaitValue64(s, at(&go), 1, 0));
  ASSERT_OK(cuMemAllocFromPoolAsync(&pointer, 64, pool, s));
  const int descriptor = export_pool(pool);
  EXPECT_EQ(run_alone("SharedPools.DISABLED_use_early", piece(descriptor, pointer)), 0);
  store(go, 1);
  EXPECT_OK(cuStreamSynchronize(s));
  ask("import_pool", pointer, piece(descriptor, pointer));
  EXPECT_EQ(::close(descriptor), 0);
  EXPECT_OK(cuMemFreeAsync(pointer, s));
  EXPECT_OK(cuMemPoolDestroy(pool));
}

TEST_F(SharedPools, DISABLED_use_early) {
  CUdeviceptr pointer = 0;
  CUstream s = stream();
  ASSERT_OK(import_piece(pointer, import_pool()));
  EXPECT_OK(cuStreamWriteValue64(s, pointer, 1, 0));
  EXPECT_EQ(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
  std::_Exit(HasFailure() ? 1 : 0);
}

// --- the order of freeing --------------------------------------------------------------------------------------------

/// The importer's process: it says when it has the piece, and ends when the pipe is closed.
class Importer {
 public:
  explicit Importer(std::vector<std::string> environment) {
    EXPECT_EQ(::pipe2(ready_, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(end_, O_CLOEXEC), 0);
    for (const int inherited : {ready_[1], end_[0]}) ::fcntl(inherited, F_SETFD, 0);
    environment.push_back("EMUCUDA_TEST_READY=" + std::to_string(ready_[1]));
    environment.push_back("EMUCUDA_TEST_END=" + std::to_string(end_[0]));
    pid_ = start_alone("SharedPools.DISABLED_keep", environment);
    char byte = 0;
    EXPECT_EQ(::read(ready_[0], &byte, 1), 1);
  }
  ~Importer() {
    for (const int one : {ready_[0], ready_[1], end_[0], end_[1]}) ::close(one);
    ended(pid_);
  }
  void kill() const { ::kill(pid_, SIGKILL); }

 private:
  int ready_[2];
  int end_[2];
  pid_t pid_;
};

TEST_F(SharedPools, DISABLED_keep) {
  CUdeviceptr pointer = 0;
  ASSERT_OK(import_piece(pointer, import_pool()));
  char byte = 0;
  EXPECT_EQ(::write(std::atoi(asked("EMUCUDA_TEST_READY")), &byte, 1), 1);
  ::close(std::atoi(asked("EMUCUDA_TEST_READY")));
  EXPECT_LE(::read(std::atoi(asked("EMUCUDA_TEST_END")), &byte, 1), 0);
}

/// How a process ends that frees what another has imported; which has been killed before that, or not.
class FreedFirst : public SharedPools {
 protected:
  template <class Free>
  void free_while_imported(bool killed, Free free) {
    CUstream s = stream();
    CUmemoryPool pool = new_pool();
    CUdeviceptr pointer = 0;
    ASSERT_OK(cuMemAllocFromPoolAsync(&pointer, 64, pool, s));
    ASSERT_OK(cuStreamSynchronize(s));
    const Importer importer(piece(export_pool(pool), pointer));
    if (killed) importer.kill();
    EXPECT_OK(free(pointer, s));
    EXPECT_OK(cuStreamSynchronize(s));
  }
};

TEST_F(FreedFirst, DISABLED_at_once) {
  free_while_imported(false, [](CUdeviceptr pointer, CUstream) { return cuMemFree(pointer); });
}
TEST_F(FreedFirst, DISABLED_in_order) { free_while_imported(false, cuMemFreeAsync); }
TEST_F(FreedFirst, by_the_owner_ends_it) {
  EXPECT_EQ(run_alone("FreedFirst.DISABLED_at_once", {}), 128 + SIGABRT);
  EXPECT_EQ(run_alone("FreedFirst.DISABLED_in_order", {}), 128 + SIGABRT);
}
TEST_F(FreedFirst, by_who_was_killed) { free_while_imported(true, cuMemFreeAsync); }

}  // namespace
}  // namespace emucuda::test
