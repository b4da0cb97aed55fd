// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <thread>

#include "tests/emucuda/emucuda.hpp"
#include "tests/emucuda/rig.hpp"

namespace emucuda::test {
namespace {

/// Writes `value` and the number of threads to where the first parameter points.
// NOLINTNEXTLINE(readability-non-const-parameter): it is an EmucudaKernel
void note(void** params, unsigned grid[3], unsigned block[3]) {
  CUdeviceptr pointer = 0;
  std::uint64_t value = 0;
  std::memcpy(&pointer, params[0], sizeof(pointer));
  std::memcpy(&value, params[1], sizeof(value));
  auto* const words = static_cast<std::uint64_t*>(emucuda_alias(pointer));
  words[0] = value;
  words[1] = std::uint64_t{grid[0]} * block[0];
}

class Kernels : public Gpu {
 public:
  Kernels() {
    constexpr std::size_t kSizes[] = {sizeof(CUdeviceptr), sizeof(std::uint64_t)};
    emucuda_register_kernel("note", note);
    emucuda_kernel_parameters("note", 2, kSizes);
    emucuda_register_kernel("unsized", note);
    EXPECT_OK(cuModuleLoadData(&module_, "anything"));
  }
  ~Kernels() override { EXPECT_OK(cuModuleUnload(module_)); }

 protected:
  CUfunction function(const char* name) {
    CUfunction result = nullptr;
    EXPECT_OK(cuModuleGetFunction(&result, module_, name));
    return result;
  }

  CUmodule module_ = nullptr;
};

TEST_F(Kernels, run_in_their_turn_on_copies_of_their_parameters) {
  CUstream s = stream();
  CUdeviceptr pointer = memory(16);
  const CUdeviceptr target = pointer;
  CUfunction kernel = function("note");  // not behind a parked stream
  std::uint64_t& go = word();
  std::uint64_t value = 5;
  void* params[] = {&pointer, &value};
  EXPECT_OK(cuStreamWaitValue64(s, at(&go), 1, 0));
  EXPECT_OK(cuLaunchKernel(kernel, 3, 1, 1, 32, 1, 1, 0, s, params, nullptr));
  value = 6;
  pointer = 0;
  store(go, 1);
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(word_of(target), 5u);
  EXPECT_EQ(word_of(target + 8), 96u);
}

TEST_F(Kernels, and_words_are_refused_when_a_test_says_so) {
  CUstream s = stream();
  CUdeviceptr pointer = memory(16);
  std::uint64_t& go = word();
  std::uint64_t value = 5;
  void* params[] = {&pointer, &value};
  const auto launch = [&] { return cuLaunchKernel(function("note"), 1, 1, 1, 1, 1, 1, 0, s, params, nullptr); };
  emucuda_refuse(1, 2, 0);
  EXPECT_OK(cuStreamWriteValue64(s, at(&go), 1, 0));
  EXPECT_EQ(launch(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuStreamWriteValue64(s, at(&go), 2, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(load(go), 1u);
  EXPECT_NE(word_of(pointer), 5u);
  EXPECT_OK(launch());
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(word_of(pointer), 5u);
  emucuda_refuse(1, 1, 1);
  EXPECT_OK(cuStreamWaitValue64(s, at(&go), 2, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_EQ(launch(), CUDA_ERROR_OUT_OF_MEMORY);  // although the stream is parked
  store(go, 2);
}

TEST_F(Kernels, and_words_of_any_thread_are_refused_by_a_stream) {
  CUstream s = stream();
  CUstream other = stream();
  std::uint64_t& go = word();
  emucuda_refuse_of(s, 1);
  EXPECT_OK(cuStreamWriteValue64(s, at(&go), 1, 0));
  EXPECT_OK(cuStreamWriteValue64(other, at(&go), 1, 0));
  CUcontext context = nullptr;
  EXPECT_OK(cuCtxGetCurrent(&context));
  std::thread([&] {
    EXPECT_OK(cuCtxSetCurrent(context));
    EXPECT_EQ(cuStreamWriteValue64(s, at(&go), 2, 0), CUDA_ERROR_OUT_OF_MEMORY);
  }).join();
  EXPECT_OK(cuStreamWriteValue64(s, at(&go), 3, 0));
}

TEST_F(Kernels, are_taken_from_a_library) {
  EXPECT_EQ(run_alone("Kernels.DISABLED_of_a_library", {"EMUCUDA_KERNELS=" EMUKERNELS}), 0);
}

TEST_F(Kernels, DISABLED_of_a_library) { EXPECT_NE(function("sluice_put"), nullptr); }

TEST_F(Kernels, refuse_what_cannot_be_launched) {
  CUfunction none = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&none, module_, "unknown"), CUDA_ERROR_NOT_FOUND);
  CUdeviceptr pointer = memory(16);
  std::uint64_t value = 5;
  void* params[] = {&pointer, &value};
  EXPECT_EQ(cuLaunchKernel(function("note"), 1, 1, 1, 1025, 1, 1, 0, stream(), params, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(function("note"), 0, 1, 1, 32, 1, 1, 0, stream(), params, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(function("unsized"), 1, 1, 1, 1, 1, 1, 0, stream(), params, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace emucuda::test
