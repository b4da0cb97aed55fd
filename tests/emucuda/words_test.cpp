// SPDX-License-Identifier: Apache-2.0
// Stream memory operations.
#include "tests/emucuda/rig.hpp"

namespace emucuda::test {
namespace {

using Words = Gpu;

TEST_F(Words, wait_until_the_host_writes) {
  std::uint64_t& go = word();
  const CUdeviceptr done = memory(8);
  CUstream s = stream();
  EXPECT_OK(cuStreamWaitValue64(s, at(&go), 5, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_OK(cuStreamWriteValue64(s, done, 7, 0));
  EXPECT_EQ(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  EXPECT_NE(word_of(done), 7u);
  store(go, 4);
  EXPECT_EQ(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  store(go, 6);
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(word_of(done), 7u);
}

TEST_F(Words, one_stream_lets_another_go) {
  const CUdeviceptr signal = memory(8);
  const CUdeviceptr data = memory(1 << 20);
  const CUdeviceptr copy = memory(1 << 20);
  CUstream first = stream();
  CUstream second = stream();
  ASSERT_OK(cuMemsetD8(signal, 0, 8));
  ASSERT_OK(cuCtxSynchronize());
  for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) {
    EXPECT_OK(cuStreamWaitValue64(second, signal, 2 * epoch - 1, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_OK(cuMemcpyDtoDAsync(copy, data, 1 << 20, second));
    EXPECT_OK(cuStreamWriteValue64(second, signal, 2 * epoch, 0));
    EXPECT_OK(cuMemsetD32Async(data, static_cast<unsigned>(epoch), 1 << 18, first));
    EXPECT_OK(cuStreamWriteValue64(first, signal, 2 * epoch - 1, 0));
    EXPECT_OK(cuStreamWaitValue64(first, signal, 2 * epoch, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_OK(cuStreamSynchronize(first));
    const auto bytes = bytes_of(copy, 1 << 20);
    for (std::size_t i = 0; i < bytes.size(); i += 4) ASSERT_EQ(bytes[i], epoch) << i;
  }
}

struct Comparison {
  std::uint64_t now, value;
  unsigned flags;
  bool passes32, passes64;
};

class Compares : public Gpu, public testing::WithParamInterface<Comparison> {};

TEST_P(Compares, as_documented) {
  const Comparison& c = GetParam();
  for (const bool wide : {false, true}) {
    std::uint64_t& w = word();
    store(w, c.now);
    CUstream s = stream();
    EXPECT_OK(wide ? cuStreamWaitValue64(s, at(&w), c.value, c.flags)
                   : cuStreamWaitValue32(s, at(&w), static_cast<std::uint32_t>(c.value), c.flags));
    if (wide ? c.passes64 : c.passes32) {
      EXPECT_OK(cuStreamSynchronize(s));
      continue;
    }
    EXPECT_EQ(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    store(w, (c.flags & CU_STREAM_WAIT_VALUE_NOR) == CU_STREAM_WAIT_VALUE_NOR ? 0 : c.value);
    EXPECT_OK(cuStreamSynchronize(s));
  }
}

constexpr unsigned kGeq = CU_STREAM_WAIT_VALUE_GEQ;
INSTANTIATE_TEST_SUITE_P(All, Compares,
                         testing::Values(Comparison{5, 5, kGeq, true, true}, Comparison{4, 5, kGeq, false, false},
                                         Comparison{2, ~std::uint64_t{0}, kGeq, true, true},
                                         Comparison{~std::uint64_t{0}, 2, kGeq, false, false},
                                         Comparison{0x90000000, 0x0000000f, kGeq, false, true},
                                         Comparison{6, 5, CU_STREAM_WAIT_VALUE_EQ, false, false},
                                         Comparison{6, 2, CU_STREAM_WAIT_VALUE_AND, true, true},
                                         Comparison{4, 2, CU_STREAM_WAIT_VALUE_AND, false, false},
                                         Comparison{~std::uint64_t{0}, 2, CU_STREAM_WAIT_VALUE_NOR, false, false},
                                         Comparison{0xffffffff, 2, CU_STREAM_WAIT_VALUE_NOR, false, true}));

TEST_F(Words, refuse_what_a_device_cannot_do) {
  CUstream s = stream();
  std::uint64_t plain = 0;
  const CUdeviceptr good = memory(16);
  EXPECT_EQ(cuStreamWriteValue64(s, at(&plain), 1, 0), CUDA_ERROR_INVALID_VALUE) << "not registered";
  EXPECT_EQ(cuStreamWriteValue64(s, good + 4, 1, 0), CUDA_ERROR_INVALID_VALUE) << "alignment";
  EXPECT_EQ(cuStreamWriteValue32(s, good + 2, 1, 0), CUDA_ERROR_INVALID_VALUE) << "alignment";
  EXPECT_EQ(cuStreamWriteValue64(s, good + 16, 1, 0), CUDA_ERROR_INVALID_VALUE) << "beyond";
  EXPECT_EQ(cuStreamWaitValue64(s, good, 1, 4), CUDA_ERROR_INVALID_VALUE) << "flags";
  EXPECT_EQ(cuStreamWaitValue64(s, good, 1, CU_STREAM_WAIT_VALUE_FLUSH), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_OK(cuStreamWriteValue32(s, good + 4, 1, 0));
}

CUstreamBatchMemOpParams operation(CUstreamBatchMemOpType type, CUdeviceptr address, std::uint64_t value) {
  CUstreamBatchMemOpParams result{};
  result.operation = type;
  result.waitValue.address = address;
  result.waitValue.value64 = value;
  return result;
}

TEST_F(Words, a_batch_is_done_in_order) {
  std::uint64_t& go = word();
  const CUdeviceptr words = memory(16);
  CUstream s = stream();
  std::vector<CUstreamBatchMemOpParams> batch = {operation(CU_STREAM_MEM_OP_WRITE_VALUE_64, words, 1),
                                                 operation(CU_STREAM_MEM_OP_WAIT_VALUE_64, at(&go), 1),
                                                 operation(CU_STREAM_MEM_OP_WRITE_VALUE_64, words + 8, 2)};
  EXPECT_OK(cuStreamBatchMemOp(s, 3, batch.data(), 0));
  batch.clear();               // it was copied
  CUstream reader = stream();  // the same all the time: one of eight would have the queue of the one that waits
  while (word_of(words, reader) != 1) {
  }
  EXPECT_NE(word_of(words + 8), 2u);
  store(go, 1);
  EXPECT_OK(cuStreamSynchronize(s));
  EXPECT_EQ(word_of(words + 8), 2u);
}

TEST_F(Words, a_batch_is_checked_before_any_of_it_is_done) {
  const CUdeviceptr good = memory(8);
  std::vector<CUstreamBatchMemOpParams> batch(256, operation(CU_STREAM_MEM_OP_WRITE_VALUE_64, good, 1));
  EXPECT_EQ(cuStreamBatchMemOp(stream(), 256, batch.data(), 0), CUDA_ERROR_INVALID_VALUE);
  batch[254] = operation(CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, 0, 0);
  EXPECT_EQ(cuStreamBatchMemOp(stream(), 255, batch.data(), 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_NE(word_of(good), 1u);
  batch[254] = operation(CU_STREAM_MEM_OP_BARRIER, 0, 0);
  EXPECT_OK(cuStreamBatchMemOp(stream(), 255, batch.data(), 0));
}

TEST(Flush, is_there_where_it_is_asked_for) { EXPECT_EQ(run_alone("Words.DISABLED_flush", {"EMUCUDA_FLUSH=1"}), 0); }

TEST_F(Words, DISABLED_flush) {
  int can = 0;
  EXPECT_OK(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 0));
  EXPECT_EQ(can, 1);
  CUstream s = stream();
  EXPECT_OK(cuStreamWaitValue64(s, at(&word()), 0, CU_STREAM_WAIT_VALUE_GEQ | CU_STREAM_WAIT_VALUE_FLUSH));
  EXPECT_OK(cuStreamSynchronize(s));
}

}  // namespace
}  // namespace emucuda::test
