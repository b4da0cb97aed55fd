// SPDX-License-Identifier: Apache-2.0
#include "tests/emucuda/word.hpp"

#include <type_traits>

#include "tests/emucuda/copy.hpp"

namespace emucuda {
namespace {

template <class Word>
bool satisfied(Word now, Word value, unsigned comparison) {
  using Signed = std::make_signed_t<Word>;
  switch (comparison) {
    // Cyclic: a counter may wrap, and is then still ahead.
    case CU_STREAM_WAIT_VALUE_GEQ: return static_cast<Signed>(static_cast<Word>(now - value)) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return now == value;
    case CU_STREAM_WAIT_VALUE_AND: return (now & value) != 0;
    default: return static_cast<Word>(~(now | value)) != 0;  // NOR
  }
}

bool is_64(CUstreamBatchMemOpType type) {
  return type == CU_STREAM_MEM_OP_WAIT_VALUE_64 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

}  // namespace

CUresult WordOperation::find_word(CUdeviceptr address, std::size_t bytes, int device) {
  auto word = driver().reachable(address, bytes, device);
  if (!word || word->size() != 1 || address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  address_ = address;
  word_ = std::move(*word);
  return CUDA_SUCCESS;
}

CUresult WordOperation::check_wait(const CUstreamBatchMemOpParams& asked, int device) {
  flags_ = asked.waitValue.flags & ~static_cast<unsigned>(CU_STREAM_WAIT_VALUE_FLUSH);
  if (flags_ > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
  if (flags_ != asked.waitValue.flags && !driver().settings().can_flush) return CUDA_ERROR_NOT_SUPPORTED;
  value_ = is_64(type_) ? asked.waitValue.value64 : asked.waitValue.value;
  return find_word(asked.waitValue.address, is_64(type_) ? 8 : 4, device);
}

CUresult WordOperation::check_write(const CUstreamBatchMemOpParams& asked, int device) {
  flags_ = asked.writeValue.flags;
  if (flags_ > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) return CUDA_ERROR_INVALID_VALUE;
  value_ = is_64(type_) ? asked.writeValue.value64 : asked.writeValue.value;
  return find_word(asked.writeValue.address, is_64(type_) ? 8 : 4, device);
}

CUresult WordOperation::check(const CUstreamBatchMemOpParams& asked, int device, WordOperation& operation) {
  operation.type_ = asked.operation;
  switch (asked.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64: return operation.check_wait(asked, device);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64: return operation.check_write(asked, device);
    case CU_STREAM_MEM_OP_BARRIER:
      return asked.memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return driver().settings().can_flush ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

template <class Word>
CUresult WordOperation::wait(Turn& turn) const {
  const auto* const word = reinterpret_cast<const Word*>(word_[0].at);
  const auto value = static_cast<Word>(value_);
  const auto ready = [&] { return satisfied(__atomic_load_n(word, __ATOMIC_ACQUIRE), value, flags_); };
  if (turn.park(word_[0], address_, value_, ready)) return CUDA_SUCCESS;
  return turn.context().error() != CUDA_SUCCESS ? turn.context().error() : CUDA_ERROR_ILLEGAL_ADDRESS;
}

template <class Word>
void WordOperation::write() const {
  auto* const word = reinterpret_cast<Word*>(word_[0].at);
  // Without the barrier, earlier writes may not be visible: ThreadSanitizer then finds code that relies on them.
  if (flags_ == CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) {
    __atomic_store_n(word, static_cast<Word>(value_), __ATOMIC_RELAXED);
  } else {
    __atomic_store_n(word, static_cast<Word>(value_), __ATOMIC_RELEASE);
  }
}

CUresult WordOperation::perform(Turn& turn) const {
  if (!alive(word_)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  switch (type_) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32: return wait<std::uint32_t>(turn);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64: return wait<std::uint64_t>(turn);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32: write<std::uint32_t>(); break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64: write<std::uint64_t>(); break;
    default: break;  // barriers and flushes: all stores here are in order already
  }
  return CUDA_SUCCESS;
}

}  // namespace emucuda
