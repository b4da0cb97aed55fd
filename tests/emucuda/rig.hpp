// SPDX-License-Identifier: Apache-2.0
// The fixture of the tests: a current context on device 0, and helpers on it.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#define EXPECT_OK(call) EXPECT_EQ(call, CUDA_SUCCESS)
#define ASSERT_OK(call) ASSERT_EQ(call, CUDA_SUCCESS)

namespace emucuda::test {

class Gpu : public testing::Test {
 public:
  Gpu();
  ~Gpu() override;

 protected:
  /// The end of the test frees the memory.
  CUdeviceptr memory(std::size_t bytes);
  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING);
  /// A word of registered memory, 0.
  std::uint64_t& word();
  static CUdeviceptr at(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
  CUcontext context() const { return context_; }

 private:
  CUcontext context_ = nullptr;
  std::vector<CUdeviceptr> memory_;
  std::vector<CUstream> streams_;
  std::vector<void*> host_;
};

/// Words as a program must read and write them that a stream uses as well.
void store(std::uint64_t& word, std::uint64_t value);
std::uint64_t load(const std::uint64_t& word);

/// Reads memory of a device, on a stream of its own that waits for no other; each call's has the next queue.
std::vector<std::uint8_t> bytes_of(CUdeviceptr pointer, std::size_t bytes);
std::uint64_t word_of(CUdeviceptr pointer);
std::uint64_t word_of(CUdeviceptr pointer, CUstream in);

/// Runs another test of this program as a process with more environment; that test has DISABLED in its name. Its
/// status.
pid_t start_alone(const std::string& test, const std::vector<std::string>& environment);
int ended(pid_t child);
int run_alone(const std::string& test, const std::vector<std::string>& environment);
const char* asked(const char* name);

}  // namespace emucuda::test
