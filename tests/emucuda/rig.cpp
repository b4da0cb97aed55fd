// SPDX-License-Identifier: Apache-2.0
#include "tests/emucuda/rig.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace emucuda::test {

Gpu::Gpu() {
  EXPECT_OK(cuInit(0));
  EXPECT_OK(cuDevicePrimaryCtxRetain(&context_, 0));
  EXPECT_OK(cuCtxPushCurrent(context_));
}

Gpu::~Gpu() {
  for (CUstream stream : streams_) EXPECT_OK(cuStreamDestroy(stream));
  for (CUdeviceptr pointer : memory_) EXPECT_OK(cuMemFree(pointer));
  for (void* pointer : host_) EXPECT_OK(cuMemFreeHost(pointer));
  EXPECT_OK(cuCtxPopCurrent(nullptr));
  EXPECT_OK(cuDevicePrimaryCtxRelease(0));
}

CUdeviceptr Gpu::memory(std::size_t bytes) {
  CUdeviceptr pointer = 0;
  EXPECT_OK(cuMemAlloc(&pointer, bytes));
  memory_.push_back(pointer);
  return pointer;
}

CUstream Gpu::stream(unsigned flags) {
  CUstream stream = nullptr;
  EXPECT_OK(cuStreamCreate(&stream, flags));
  streams_.push_back(stream);
  return stream;
}

std::uint64_t& Gpu::word() {
  void* pointer = nullptr;
  EXPECT_OK(cuMemHostAlloc(&pointer, sizeof(std::uint64_t), 0));
  host_.push_back(pointer);
  return *static_cast<std::uint64_t*>(pointer);
}

void store(std::uint64_t& word, std::uint64_t value) { std::atomic_ref(word).store(value, std::memory_order_release); }

std::uint64_t load(const std::uint64_t& word) {
  return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_acquire);
}

std::vector<std::uint8_t> bytes_of(CUdeviceptr pointer, std::size_t bytes) {
  std::vector<std::uint8_t> result(bytes);
  CUstream stream = nullptr;
  EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_OK(cuMemcpyDtoHAsync(result.data(), pointer, bytes, stream));
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_OK(cuStreamDestroy(stream));
  return result;
}

std::uint64_t word_of(CUdeviceptr pointer) {
  std::uint64_t value = 0;
  const auto bytes = bytes_of(pointer, sizeof(value));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::uint8_t*>(&value));
  return value;
}

std::uint64_t word_of(CUdeviceptr pointer, CUstream in) {
  std::uint64_t value = 0;
  EXPECT_OK(cuMemcpyDtoHAsync(&value, pointer, sizeof(value), in));
  EXPECT_OK(cuStreamSynchronize(in));
  return value;
}

pid_t start_alone(const std::string& test, const std::vector<std::string>& environment) {
  const std::string filter = "--gtest_filter=" + test;
  const pid_t child = ::fork();
  if (child == 0) {
    for (const std::string& variable : environment) ::putenv(const_cast<char*>(variable.c_str()));
    ::execl("/proc/self/exe", "emucuda_test", filter.c_str(), "--gtest_also_run_disabled_tests", nullptr);
    ::_exit(127);
  }
  return child;
}

int ended(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run_alone(const std::string& test, const std::vector<std::string>& environment) {
  return ended(start_alone(test, environment));
}

const char* asked(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

}  // namespace emucuda::test
