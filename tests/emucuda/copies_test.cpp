// SPDX-License-Identifier: Apache-2.0
// Copies: which calls wait for them, and when they read.
#include <numeric>

#include "tests/emucuda/rig.hpp"

namespace emucuda::test {
namespace {

constexpr std::size_t kBytes = 10000;

class Copies : public Gpu {
 protected:
  Copies() { std::iota(data_.begin(), data_.end(), std::uint8_t{1}); }
  /// Nothing that is submitted to it is done before `go`.
  CUstream parked() {
    CUstream s = stream();
    EXPECT_OK(cuStreamWaitValue64(s, at(&go_), 1, 0));
    return s;
  }
  void go() { store(go_, 1); }

  std::vector<std::uint8_t> data_ = std::vector<std::uint8_t>(kBytes);

 private:
  std::uint64_t& go_ = word();
};

TEST_F(Copies, there_and_back) {
  const CUdeviceptr first = memory(kBytes);
  const CUdeviceptr second = memory(kBytes);
  EXPECT_OK(cuMemcpyHtoD(first, data_.data(), kBytes));
  EXPECT_OK(cuMemcpyDtoD(second + 1, first + 1, kBytes - 1));
  EXPECT_OK(cuMemcpy(second, first, 1));
  std::vector<std::uint8_t> back(kBytes);
  EXPECT_OK(cuMemcpyDtoH(back.data(), second, kBytes));
  EXPECT_EQ(back, data_);
}

TEST_F(Copies, memory_that_is_not_registered_is_read_at_once) {
  const CUdeviceptr target = memory(kBytes);
  CUstream s = parked();
  const auto wanted = data_;
  EXPECT_OK(cuMemcpyHtoDAsync(target, data_.data(), kBytes, s));
  data_.assign(kBytes, 0);
  go();
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(bytes_of(target, kBytes), wanted);
}

TEST_F(Copies, registered_memory_is_read_when_its_turn_comes) {
  const CUdeviceptr target = memory(kBytes);
  ASSERT_OK(cuMemHostRegister(data_.data(), kBytes, 0));
  CUstream s = parked();
  EXPECT_OK(cuMemcpyHtoDAsync(target, data_.data(), kBytes, s));
  data_.assign(kBytes, 9);
  go();
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(bytes_of(target, kBytes), data_);
  EXPECT_OK(cuMemHostUnregister(data_.data()));
}

TEST_F(Copies, between_devices_nobody_waits) {
  std::uint64_t& go_on = word();
  const CUdeviceptr first = memory(8);
  const CUdeviceptr second = memory(8);
  EXPECT_OK(cuStreamWaitValue64(stream(CU_STREAM_DEFAULT), at(&go_on), 1, 0));
  EXPECT_OK(cuMemcpyDtoD(second, first, 8));
  EXPECT_OK(cuMemsetD32(first, 1, 2));
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  store(go_on, 1);
  EXPECT_OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(word_of(first), 0x100000001u);
  EXPECT_EQ(word_of(second), 0xDBDBDBDBDBDBDBDBu);
}

TEST_F(Copies, bad_memory_is_refused) {
  std::uint8_t byte = 0;
  EXPECT_EQ(cuMemcpyHtoD(at(&byte), &byte, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH(&byte, at(&byte), 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD(0, &byte, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoD(memory(8), memory(8), 9), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemcpyHtoD(memory(8), &byte, 0));
}

}  // namespace
}  // namespace emucuda::test
