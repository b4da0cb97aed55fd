// SPDX-License-Identifier: Apache-2.0
// Stream capture: what may not be done meanwhile, by whom, and what becomes of the capture.
#include <unistd.h>

#include <functional>
#include <thread>

#include "tests/emucuda/cuda_api.hpp"
#include "tests/emucuda/rig.hpp"

namespace emucuda::test {
namespace {

constexpr CUstreamCaptureMode kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr CUstreamCaptureMode kOfThread = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
constexpr CUstreamCaptureMode kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

class Captures : public Gpu {
 protected:
  static CUstreamCaptureStatus status(CUstream s) {
    CUstreamCaptureStatus status{};
    EXPECT_OK(cuStreamIsCapturing(s, &status));
    return status;
  }
  static void end_valid(CUstream s) {
    CUgraph graph = nullptr;
    EXPECT_OK(cuStreamEndCapture(s, &graph));
    EXPECT_OK(cuGraphDestroy(graph));
  }
  void end_invalid(CUstream s) {
    CUgraph graph = reinterpret_cast<CUgraph>(this);
    EXPECT_EQ(status(s), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CUcontext of_stream = nullptr;
    EXPECT_EQ(cuStreamGetCtx(s, &of_stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(cuMemsetD8Async(target_, 0, 8, s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(status(s), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_OK(cuMemsetD8Async(target_, 0, 8, s));
    EXPECT_OK(cuStreamSynchronize(s));
  }
  /// In a thread of its own, in this mode.
  template <class Call>
  void elsewhere(CUstreamCaptureMode mode, Call call) {
    std::thread([&] {
      EXPECT_OK(cuCtxSetCurrent(context()));
      EXPECT_OK(cuThreadExchangeStreamCaptureMode(&mode));
      EXPECT_EQ(mode, kGlobal) << "of every thread, at first";
      call();
    }).join();
  }

  const CUdeviceptr target_ = memory(8);
};

TEST_F(Captures, have_a_status_and_an_id) {
  CUstream s = stream();
  CUstreamCaptureStatus now{};
  cuuint64_t first = 0;
  cuuint64_t second = 0;
  EXPECT_OK(cuStreamBeginCapture(s, kGlobal));
  EXPECT_EQ(status(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(status(stream()), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_OK(cuStreamGetCaptureInfo(s, &now, &first, nullptr, nullptr, nullptr, nullptr));
  EXPECT_EQ(now, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  end_valid(s);
  EXPECT_OK(cuStreamBeginCapture(s, kGlobal));
  EXPECT_OK(cuStreamGetCaptureInfo_v2(s, &now, &second, nullptr, nullptr, nullptr));
  EXPECT_NE(first, second);
  end_valid(s);
}

TEST_F(Captures, are_begun_once_and_ended_once_and_not_of_the_legacy_stream) {
  CUstream s = stream();
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamBeginCapture(nullptr, kGlobal), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamBeginCapture(CU_STREAM_LEGACY, kRelaxed), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamBeginCapture(s, static_cast<CUstreamCaptureMode>(3)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamEndCapture(s, &graph), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_OK(cuStreamBeginCapture(s, kGlobal));
  EXPECT_EQ(cuStreamBeginCapture(s, kGlobal), CUDA_ERROR_ILLEGAL_STATE);
  end_valid(s);
  EXPECT_OK(cuStreamBeginCapture(CU_STREAM_PER_THREAD, kGlobal));
  end_valid(CU_STREAM_PER_THREAD);
}

TEST_F(Captures, end_in_the_thread_that_began_them_unless_relaxed) {
  CUstream s = stream();
  EXPECT_OK(cuStreamBeginCapture(s, kOfThread));
  elsewhere(kGlobal, [&] {
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  });
  end_valid(s);
  EXPECT_OK(cuStreamBeginCapture(s, kRelaxed));
  elsewhere(kGlobal, [&] { end_valid(s); });
}

TEST_F(Captures, end_with_their_context) {
  CUcontext other = nullptr;
  CUstream s = nullptr;
  ASSERT_OK(cuDevicePrimaryCtxRetain(&other, 1));
  EXPECT_OK(cuCtxPushCurrent(other));
  EXPECT_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  EXPECT_OK(cuStreamBeginCapture(s, kGlobal));
  EXPECT_OK(cuCtxPopCurrent(nullptr));
  EXPECT_OK(cuDevicePrimaryCtxRelease(1));
  EXPECT_OK(cuCtxSynchronize());
}

// --- what uses the stream and cannot be recorded ---------------------------------------------------------------------

TEST_F(Captures, become_invalid_by_what_cannot_be_recorded) {
  CUstream s = stream();
  CUevent event = nullptr;
  CUdeviceptr pointer = 0;
  std::uint64_t plain = 0;
  std::uint64_t& pinned = word();
  CUdeviceptr of_pool = 0;
  ASSERT_OK(cuMemAllocAsync(&of_pool, 8, s));
  ASSERT_OK(cuEventCreate(&event, 0));
  const std::vector<std::function<CUresult()>> calls = {
      [&] { return cuStreamSynchronize(s); },
      [&] { return cuStreamQuery(s); },
      [&] { return cuStreamDestroy(s); },
      [&] { return cuEventRecord(event, s); },
      [&] { return cuStreamWaitEvent(s, event, 0); },
      [&] { return cuMemAllocAsync(&pointer, 8, s); },
      [&] { return cuMemFreeAsync(of_pool, s); },
      [&] { return cuMemcpyHtoDAsync(target_, &plain, 8, s); },
      [&] { return cuMemcpyDtoHAsync(&plain, target_, 8, s); },
      [&] { return cuMemcpyAsync(at(&pinned), at(&plain), 8, s); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_OK(cuStreamBeginCapture(s, kRelaxed));
    EXPECT_EQ(calls[i](), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(s);
  }
  EXPECT_OK(cuMemFreeAsync(of_pool, s));
  EXPECT_OK(cuEventDestroy(event));
}

TEST_F(Captures, of_a_blocking_stream_leave_no_legacy_stream) {
  CUstream s = stream(CU_STREAM_DEFAULT);
  CUstream unknown = stream();  // to the legacy one
  CUstreamCaptureStatus now{};
  const std::vector<std::function<CUresult()>> calls = {
      [&] { return cuStreamWriteValue64(nullptr, target_, 1, 0); },
      [&] { return cuStreamSynchronize(CU_STREAM_LEGACY); },
      [&] { return cuMemsetD8(target_, 0, 8); },
      [&] { return cuMemcpyDtoD(target_, target_, 8); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_OK(cuStreamBeginCapture(s, kRelaxed));
    EXPECT_EQ(cuStreamIsCapturing(nullptr, &now), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(status(s), CU_STREAM_CAPTURE_STATUS_ACTIVE) << "who only asks does no harm";
    EXPECT_EQ(calls[i](), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    end_invalid(s);
    EXPECT_OK(cuStreamBeginCapture(unknown, kRelaxed));
    EXPECT_OK(calls[i]());
    end_valid(unknown);
  }
}

// --- calls that CUDA names potentially unsafe ------------------------------------------------------------------------

TEST_F(Captures, forbid_unsafe_calls) {
  CUstream s = stream();
  CUstream other = stream();
  CUdeviceptr pointer = 0;
  CUdeviceptr of_pool = 0;
  CUmodule module = nullptr;
  CUevent event = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUmemoryPool pool = nullptr;
  CUmemPoolProps shared{};
  shared.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  shared.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  shared.location.id = 0;
  shared.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  int descriptor = -1;
  void* host = nullptr;
  std::vector<char> pages(8192);
  ASSERT_OK(cuEventCreate(&event, 0));
  ASSERT_OK(cuStreamBeginCapture(s, kGlobal));
  ASSERT_OK(cuStreamEndCapture(s, &graph));
  const std::vector<std::function<CUresult()>> calls = {
      [&] { return cuMemAlloc(&pointer, 8); },
      [&] { return cuMemFree(pointer); },
      [&] { return cuMemAllocHost(&host, 8); },
      [&] { return cuMemFreeHost(host); },
      [&] { return cuMemHostRegister(pages.data(), pages.size(), 0); },
      [&] { return cuMemHostUnregister(pages.data()); },
      [&] { return cuModuleLoadData(&module, "anything"); },
      [&] { return cuModuleUnload(module); },
      [&] { return cuEventQuery(event); },
      [&] { return cuEventSynchronize(event); },
      [&] { return cuStreamQuery(other); },
      [&] { return cuStreamSynchronize(other); },
      [&] { return cuGraphInstantiate(&exec, graph, 0); },
      [&] { return cuGraphExecDestroy(exec); },
      [&] { return cuMemPoolCreate(&pool, &shared); },
      [&] { return cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0); },
      [&] { return cuMemAllocFromPoolAsync(&of_pool, 8, pool, other); },
      [&] { return cuMemFreeAsync(of_pool, other); },
      [&] { return cuMemPoolDestroy(pool); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(i);
    for (const CUstreamCaptureMode mode : {kGlobal, kOfThread}) {
      EXPECT_OK(cuStreamBeginCapture(s, mode));
      EXPECT_EQ(calls[i](), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
      end_invalid(s);
    }
    EXPECT_OK(cuStreamBeginCapture(s, kRelaxed));
    EXPECT_OK(calls[i]());
    end_valid(s);
  }
  EXPECT_EQ(cuMemUnmap(target_, 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuStreamBeginCapture(s, kGlobal));
  EXPECT_EQ(cuMemUnmap(target_, 8), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_invalid(s);
  EXPECT_OK(cuEventDestroy(event));
  EXPECT_OK(cuGraphDestroy(graph));
  close(descriptor);
}

struct Meeting {
  CUstreamCaptureMode capture, thread;
  bool own, other;  // whether a call is allowed in the thread of the capture, and in another
};

class CaptureModes : public Captures, public testing::WithParamInterface<Meeting> {};

TEST_P(CaptureModes, say_who_may_do_unsafe_calls) {
  const Meeting& meeting = GetParam();
  CUstream s = stream();
  const auto call = [&](bool allowed) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuMemAlloc(&pointer, 8), allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(status(s), allowed ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CUgraph graph = nullptr;
    cuStreamEndCapture(s, &graph);
    EXPECT_EQ(cuMemFree(pointer), allowed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
  };
  elsewhere(meeting.thread, [&] {
    EXPECT_OK(cuStreamBeginCapture(s, meeting.capture));
    call(meeting.own);
  });
  CUdeviceptr pointer = 0;
  EXPECT_OK(cuStreamBeginCapture(s, meeting.capture));
  elsewhere(meeting.thread, [&] {
    EXPECT_EQ(cuMemAlloc(&pointer, 8), meeting.other ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  });
  meeting.other ? end_valid(s) : end_invalid(s);
  EXPECT_EQ(cuMemFree(pointer), meeting.other ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

INSTANTIATE_TEST_SUITE_P(
    All, CaptureModes,
    testing::Values(Meeting{kGlobal, kGlobal, false, false}, Meeting{kGlobal, kOfThread, false, true},
                    Meeting{kGlobal, kRelaxed, true, true}, Meeting{kOfThread, kGlobal, false, true},
                    Meeting{kOfThread, kOfThread, false, true}, Meeting{kOfThread, kRelaxed, true, true},
                    Meeting{kRelaxed, kGlobal, true, true}, Meeting{kRelaxed, kOfThread, true, true},
                    Meeting{kRelaxed, kRelaxed, true, true}));

TEST_F(Captures, forbid_to_wait_for_their_context_whoever_is_relaxed) {
  CUstream s = stream();
  EXPECT_OK(cuStreamBeginCapture(s, kRelaxed));
  elsewhere(kRelaxed, [] { EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); });
  end_invalid(s);
}

}  // namespace
}  // namespace emucuda::test
