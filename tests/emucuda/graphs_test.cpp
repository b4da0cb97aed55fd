// SPDX-License-Identifier: Apache-2.0
// Graphs: what was recorded is done at each launch, as it was given.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "tests/emucuda/cuda_api.hpp"
#include "tests/emucuda/emucuda.hpp"
#include "tests/emucuda/rig.hpp"
#include "tests/gpu_stream.hpp"

namespace emucuda::test {
namespace {

class Graphs : public Gpu {
 public:
  ~Graphs() override {
    for (CUgraphExec exec : execs_) EXPECT_OK(cuGraphExecDestroy(exec));
  }

 protected:
  /// A graph of `nodes` operations, which `give` gives to the stream.
  template <class Give>
  CUgraphExec captured(CUstream s, std::size_t nodes, Give give) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    std::size_t count = 0;
    EXPECT_OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    give();
    EXPECT_OK(cuStreamEndCapture(s, &graph));
    EXPECT_OK(cuGraphGetNodes(graph, nullptr, &count));
    EXPECT_EQ(count, nodes);
    EXPECT_OK(cuGraphInstantiate(&exec, graph, 0));
    EXPECT_OK(cuGraphDestroy(graph));
    execs_.push_back(exec);
    return exec;
  }
  CUgraphExec writes(CUstream s, CUdeviceptr to, std::uint64_t value) {
    return captured(s, 1, [&] { EXPECT_OK(cuStreamWriteValue64(s, to, value, 0)); });
  }

  std::vector<CUgraphExec> execs_;
};

/// Adds its second parameter to where the first one points; then it spoils both.
void add(void** params, unsigned*, unsigned*) {
  CUdeviceptr pointer = 0;
  std::uint64_t value = 0;
  std::memcpy(&pointer, params[0], sizeof(pointer));
  std::memcpy(&value, params[1], sizeof(value));
  *static_cast<std::uint64_t*>(emucuda_alias(pointer)) += value;
  std::memset(params[0], 0xff, sizeof(pointer));
  std::memset(params[1], 0xff, sizeof(value));
}

TEST_F(Graphs, do_all_of_it_in_order_at_each_launch_and_nothing_before) {
  constexpr std::size_t kSizes[] = {sizeof(CUdeviceptr), sizeof(std::uint64_t)};
  emucuda_register_kernel("add", add);
  emucuda_kernel_parameters("add", 2, kSizes);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_OK(cuModuleLoadData(&module, "anything"));
  ASSERT_OK(cuModuleGetFunction(&function, module, "add"));
  CUstream s = stream();
  CUstream other = stream();
  const CUdeviceptr sum = memory(8);
  const CUdeviceptr copy = memory(8);
  std::uint64_t& given = word();
  std::uint64_t& go = word();
  int calls = 0;

  CUdeviceptr to = sum;
  std::uint64_t value = 5;
  void* params[] = {&to, &value};
  CUstreamBatchMemOpParams batch[2] = {};
  batch[0].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, at(&go), {}, CU_STREAM_WAIT_VALUE_GEQ, 0};
  batch[0].waitValue.value64 = 1;
  batch[1].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, at(&go), {}, 0, 0};
  CUgraphExec exec = captured(s, 6, [&] {
    EXPECT_OK(cuStreamBatchMemOp(s, 2, batch, 0));
    EXPECT_OK(cuMemsetD8Async(sum, 0, 8, s));
    EXPECT_OK(cuMemcpyHtoDAsync(sum, &given, 4, s));
    EXPECT_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, s, params, nullptr));
    EXPECT_OK(cuMemcpyDtoDAsync(copy, sum, 8, s));
    EXPECT_OK(cuLaunchHostFunc(
        s, [](void* count) { ++*static_cast<int*>(count); }, &calls));
  });
  to = 0;
  value = 0;
  batch[0] = batch[1];
  EXPECT_OK(cuModuleUnload(module));

  store(go, 1);
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(load(go), 1u) << "nothing was done";
  for (int launch = 1; launch <= 3; ++launch) {
    given = static_cast<std::uint64_t>(launch) * 10;  // it is read when its turn comes
    store(go, 1);
    EXPECT_OK(cuGraphLaunch(exec, launch == 1 ? s : other));
    EXPECT_OK(cuStreamSynchronize(launch == 1 ? s : other));
    EXPECT_EQ(load(go), 0u);
    EXPECT_EQ(word_of(copy), static_cast<std::uint64_t>(launch) * 10 + 5);
    EXPECT_EQ(calls, launch);
  }
}

TEST_F(Graphs, wait_their_turn_in_the_stream_that_launches_them) {
  CUstream s = stream();
  std::uint64_t& go = word();
  const CUdeviceptr done = memory(8);
  CUgraphExec exec = writes(stream(), done, 2);
  EXPECT_OK(cuStreamWaitValue64(s, at(&go), 1, 0));
  EXPECT_OK(cuStreamWriteValue64(s, done, 1, 0));
  EXPECT_OK(cuGraphLaunch(exec, s));
  EXPECT_OK(cuStreamWriteValue64(s, at(&go), 3, 0));
  EXPECT_EQ(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  store(go, 1);
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(word_of(done), 2u);
  EXPECT_EQ(load(go), 3u);
}

TEST_F(Graphs, of_one_exec_run_one_at_a_time) {
  CUstream first = stream();
  CUstream second = stream();
  std::uint64_t& go = word();
  std::atomic<int> begun{0};
  CUgraphExec exec = captured(first, 2, [&] {
    EXPECT_OK(cuLaunchHostFunc(
        first, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &begun));
    EXPECT_OK(cuStreamWaitValue64(first, at(&go), 1, 0));
  });
  EXPECT_OK(cuGraphLaunch(exec, first));
  EXPECT_OK(cuGraphLaunch(exec, second));
  while (begun == 0) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(begun, 1);
    std::this_thread::yield();
  }
  store(go, 1);
  EXPECT_OK(cuStreamSynchronize(second));
  EXPECT_EQ(begun, 2);
}

TEST_F(Graphs, that_were_launched_are_done_though_their_exec_is_gone) {
  CUstream s = stream();
  std::uint64_t& go = word();
  const CUdeviceptr done = memory(8);
  CUgraphExec exec = writes(s, done, 1);
  EXPECT_OK(cuStreamWaitValue64(s, at(&go), 1, 0));
  EXPECT_OK(cuGraphLaunch(exec, s));
  EXPECT_OK(cuGraphExecDestroy(exec));
  EXPECT_EQ(cuGraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE);
  execs_.clear();
  store(go, 1);
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(word_of(done), 1u);
}

TEST_F(Graphs, may_be_part_of_graphs) {
  CUstream s = stream();
  const CUdeviceptr words = memory(16);
  CUgraphExec inner = writes(s, words, 1);
  CUgraphExec outer = captured(s, 2, [&] {
    EXPECT_OK(cuGraphLaunch(inner, s));
    EXPECT_OK(cuMemcpyDtoDAsync(words + 8, words, 8, s));
  });
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_NE(word_of(words), 1u);
  EXPECT_OK(cuGraphLaunch(outer, s));
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(word_of(words + 8), 1u);
}

TEST_F(Graphs, stay_in_their_context) {
  CUcontext other = nullptr;
  CUstream s = nullptr;
  CUgraphExec exec = writes(stream(), memory(8), 1);
  ASSERT_OK(cuDevicePrimaryCtxRetain(&other, 1));
  EXPECT_OK(cuCtxPushCurrent(other));
  EXPECT_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  EXPECT_EQ(cuGraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuCtxPopCurrent(nullptr));
  EXPECT_OK(cuDevicePrimaryCtxRelease(1));
}

TEST_F(Graphs, DISABLED_of_memory_that_is_gone) {
  CUstream s = stream();
  CUdeviceptr pointer = 0;
  EXPECT_OK(cuMemAlloc(&pointer, 8));
  CUgraphExec exec = writes(s, pointer, 1);
  EXPECT_OK(cuMemFree(pointer));
  EXPECT_OK(cuGraphLaunch(exec, s));
  EXPECT_EQ(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
  std::_Exit(HasFailure() ? 1 : 0);  // nothing can be cleaned up
}

TEST(IllegalAddress, is_what_a_launch_says_of_memory_that_is_gone) {
  EXPECT_EQ(run_alone("Graphs.DISABLED_of_memory_that_is_gone", {}), 0);
}

TEST(Slow, graphs_keep_their_order) {
  EXPECT_EQ(run_alone("Graphs.*-*DISABLED*", {"EMUCUDA_SLOW_US=100", "EMUCUDA_SEED=7"}), 0);
}

TEST(Names, of_graphs_have_versions) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto at = [](const char* name, int version) {
    void* function = nullptr;
    cuGetProcAddress(name, &function, version, 0, nullptr);
    return function;
  };
  EXPECT_EQ(at("cuStreamBeginCapture", 12000), dlsym(library, "cuStreamBeginCapture_v2"));
  EXPECT_EQ(at("cuStreamGetCaptureInfo", 11020), nullptr);
  EXPECT_EQ(at("cuStreamGetCaptureInfo", 12020), dlsym(library, "cuStreamGetCaptureInfo_v2"));
  EXPECT_EQ(at("cuStreamGetCaptureInfo", 12030), dlsym(library, "cuStreamGetCaptureInfo_v3"));
  EXPECT_EQ(at("cuGraphInstantiate", 11040), nullptr);
  EXPECT_EQ(at("cuGraphInstantiate", 12000), dlsym(library, "cuGraphInstantiateWithFlags"));
  EXPECT_EQ(at("cuGraphInstantiateWithFlags", 13000), dlsym(library, "cuGraphInstantiateWithFlags"));
  dlclose(library);
}

// --- as the tests of the library have them ---------------------------------------------------------------------------

using sluice::test::CaptureMode;
using sluice::test::GpuBuffer;
using sluice::test::GpuGraph;
using sluice::test::GpuStream;
using sluice::test::PinnedBuffer;

TEST(GpuGraph, gives_again_what_was_given) {
  ASSERT_EQ(sluice::test::why_no_gpu(), "");
  GpuStream stream;
  GpuStream other;
  const GpuBuffer between(8);
  const PinnedBuffer from(8);
  const PinnedBuffer to(8);
  int calls = 0;
  for (const CaptureMode mode : {CaptureMode::of_thread, CaptureMode::global}) {
    sluice::test::capture_mode = mode;
    const auto work = [&] {
      stream.run([&calls, one = std::make_shared<int>(1)] { calls += *one; });
      stream.copy(between.data(), from.data(), 8);
      stream.copy(to.data(), between.data(), 8);
    };
    GpuGraph graph(stream, work);
    calls = 0;
    for (int launch = 1; launch <= 3; ++launch) {
      std::memset(from.data(), launch, 8);
      GpuStream& on = launch == 2 ? other : stream;
      graph.launch(on);
      on.synchronize();
      EXPECT_EQ(std::to_integer<int>(to.data()[7]), launch);
      EXPECT_EQ(calls, launch);
    }
  }
}

TEST(GpuGraph, lets_the_stream_go_if_its_work_throws_or_cannot_be_captured) {
  ASSERT_EQ(sluice::test::why_no_gpu(), "");
  GpuStream stream;
  const auto fail = [&] {
    stream.run([] {});
    throw std::logic_error("of the work");
  };
  EXPECT_THROW(GpuGraph(stream, fail), std::logic_error);
  EXPECT_THROW(GpuGraph(stream, [&] { stream.synchronize(); }), std::runtime_error);
  bool called = false;
  stream.run([&] { called = true; });
  stream.synchronize();
  EXPECT_TRUE(called);
}

}  // namespace
}  // namespace emucuda::test
