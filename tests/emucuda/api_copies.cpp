// SPDX-License-Identifier: Apache-2.0
// Copies and fills. Their waits, for host memory that is registered or not, follow the driver's page on
// synchronisation: memory that is not registered is staged, and read before the call returns.
#include <algorithm>
#include <memory>
#include <vector>

#include "tests/emucuda/copy.hpp"
#include "tests/emucuda/driver.hpp"

using namespace emucuda;

namespace {

enum class Wait { never, as_documented };

struct Job {
  StreamPtr stream;
  Pieces to;
  Pieces from;

  bool pageable(const Pieces& pieces) const { return !pieces[0].range; }
  bool between_hosts() const { return !on_device(to) && !on_device(from); }
  bool on_device(const Pieces& pieces) const { return !pageable(pieces) && !pieces[0].range->on_host(); }
  bool sync_memops() const { return of_sync_memops(to) || of_sync_memops(from); }

 private:
  static bool of_sync_memops(const Pieces& pieces) {
    return std::any_of(pieces.begin(), pieces.end(),
                       [](const Piece& piece) { return piece.range && piece.range->sync_memops; });
  }
};

CUresult prepare(Job& job, CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  const int device = job.stream->context.device();
  auto target = driver().copyable(to, bytes, device);
  auto source = driver().copyable(from, bytes, device);
  if (!target || !source) return CUDA_ERROR_INVALID_VALUE;
  job.to = std::move(*target);
  job.from = std::move(*source);
  return CUDA_SUCCESS;
}

Mark submit(const Job& job) {
  return job.stream->context.submit(job.stream, [to = job.to, from = job.from](Turn&) {
    if (!alive(to) || !alive(from)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    copy(to, from);
    return CUDA_SUCCESS;
  });
}

/// Takes the bytes now; the program may change them as soon as the call is back.
void submit_staged(const Job& job) {
  auto bytes = std::make_shared<std::vector<char>>(job.from[0].at, job.from[0].at + job.from[0].bytes);
  job.stream->context.submit(job.stream, [to = job.to, bytes](Turn&) {
    if (!alive(to)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    copy(to, {{nullptr, bytes->data(), bytes->size()}});
    return CUDA_SUCCESS;
  });
}

CUresult copy_async(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream handle) {
  Job job;
  if (const CUresult error = use_stream(handle, job.stream)) return error;
  if (bytes == 0) return CUDA_SUCCESS;
  if (const CUresult error = prepare(job, to, from, bytes)) return error;
  const bool staged = job.pageable(job.to) || job.pageable(job.from) || job.sync_memops();
  // A graph does not make its launch wait.
  const CUresult error = staged ? driver().captures.use(job.stream, IfCapturing::refuse) : CUDA_SUCCESS;
  if (error) return error;
  if (job.pageable(job.from) && job.on_device(job.to)) {
    submit_staged(job);
    return CUDA_SUCCESS;
  }
  const Mark mark = submit(job);
  const bool wait = staged || (job.between_hosts() && mark.stream);  // what is captured has no stream
  return wait ? job.stream->context.wait({mark}) : CUDA_SUCCESS;
}

/// On the legacy stream. Between devices it does not wait, whatever its name says.
CUresult copy_now(const char* call, CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  Job job;
  if (const CUresult error = use_stream(CU_STREAM_LEGACY, job.stream)) return error;
  if (bytes == 0) return CUDA_SUCCESS;
  if (const CUresult error = prepare(job, to, from, bytes)) return error;
  Context& context = job.stream->context;
  if (job.on_device(job.to) && job.on_device(job.from) && !job.sync_memops()) {
    submit(job);
    return CUDA_SUCCESS;
  }
  Marks marks = context.before(job.stream);
  if (job.pageable(job.from) && job.on_device(job.to)) {
    const CUresult error = context.wait_implicitly(call, marks);
    submit_staged(job);
    return error;
  }
  marks.push_back(submit(job));
  return context.wait_implicitly(call, marks);
}

/// Memory of which a function's name says that it is a device's. Registered memory will do.
CUresult known(CUdeviceptr pointer) {
  if (const CUresult error = use_driver()) return error;
  return driver().addresses.at(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fill_memory(CUdeviceptr to, std::uint32_t value, std::size_t pattern, std::size_t count, CUstream handle,
                     Wait wait) {
  StreamPtr stream;
  if (const CUresult error = use_stream(handle, stream)) return error;
  if (count == 0) return CUDA_SUCCESS;
  const auto pieces = driver().reachable(to, count * pattern, stream->context.device());
  if (!pieces || to % pattern != 0) return CUDA_ERROR_INVALID_VALUE;
  const Mark mark = stream->context.submit(stream, [pieces = *pieces, value, pattern](Turn&) {
    if (!alive(pieces)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    fill(pieces, value, pattern);
    return CUDA_SUCCESS;
  });
  // Only fills of host memory wait, among those that are not asynchronous.
  const bool waits = wait == Wait::as_documented && pieces->front().range->on_host();
  return waits ? stream->context.wait_implicitly("cuMemset", {mark}) : CUDA_SUCCESS;
}

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

extern "C" {

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) { return copy_now("cuMemcpy", to, from, bytes); }

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  if (const CUresult error = known(to)) return error;
  return copy_now("cuMemcpyHtoD", to, address(from), bytes);
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  if (const CUresult error = known(from)) return error;
  return copy_now("cuMemcpyDtoH", address(to), from, bytes);
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  if (const CUresult error = known(to)) return error;
  if (const CUresult error = known(from)) return error;
  return copy_now("cuMemcpyDtoD", to, from, bytes);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_async(to, from, bytes, stream);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  if (const CUresult error = known(to)) return error;
  return copy_async(to, address(from), bytes, stream);
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (const CUresult error = known(from)) return error;
  return copy_async(address(to), from, bytes, stream);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (const CUresult error = known(to)) return error;
  if (const CUresult error = known(from)) return error;
  return copy_async(to, from, bytes, stream);
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
  return fill_memory(to, value, 1, count, CU_STREAM_LEGACY, Wait::as_documented);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return fill_memory(to, value, 1, count, stream, Wait::never);
}

CUresult cuMemsetD32(CUdeviceptr to, unsigned int value, size_t count) {
  return fill_memory(to, value, 4, count, CU_STREAM_LEGACY, Wait::as_documented);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  return fill_memory(to, value, 4, count, stream, Wait::never);
}
}
