// SPDX-License-Identifier: Apache-2.0
// Stream memory operations.
#include <vector>

#include "tests/emucuda/driver.hpp"
#include "tests/emucuda/word.hpp"

using namespace emucuda;

namespace {

constexpr unsigned kBatchLimit = 256;

CUresult submit_one(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address, std::uint64_t value,
                    unsigned flags) {
  CUstreamBatchMemOpParams operation{};
  operation.operation = type;
  // The members for waiting and writing have the same layout.
  operation.waitValue.address = address;
  operation.waitValue.value64 = value;
  operation.waitValue.flags = flags;
  return cuStreamBatchMemOp(stream, 1, &operation, 0);
}

}  // namespace

extern "C" {

/// All is checked before any of it is done.
CUresult cuStreamBatchMemOp(CUstream handle, unsigned int count, CUstreamBatchMemOpParams* asked, unsigned int flags) {
  StreamPtr stream;
  if (const CUresult error = use_stream(handle, stream)) return error;
  if (!driver().settings().word_operations) return CUDA_ERROR_NOT_SUPPORTED;
  if (count >= kBatchLimit || (count > 0 && !asked) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<WordOperation> operations(count);
  for (unsigned i = 0; i < count; ++i) {
    if (const CUresult error = WordOperation::check(asked[i], stream->context.device(), operations[i])) return error;
  }
  stream->context.submit(stream, [operations = std::move(operations)](Turn& turn) {
    for (const WordOperation& operation : operations) {
      if (&operation != operations.data()) turn.dawdle();
      if (const CUresult error = operation.perform(turn)) return error;
    }
    return CUDA_SUCCESS;
  });
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  return submit_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  return submit_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  return submit_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  return submit_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}
}
