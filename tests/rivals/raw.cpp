// SPDX-License-Identifier: Apache-2.0
// The floor: what the driver offers, and nothing else. Copies into memory that both processes have mapped, and a word
// for each slot, written and waited for by the stream; those of several slots in one operation.
#include "tests/rivals/cuda.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace {

using rivals::check;
using rivals::Cuda;

constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::size_t kAlignment = 4096;

std::size_t round_up(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class Raw : public rivals::Verbs {
 public:
  Raw(const rivals::Case& one_case, const rivals::Rank& rank, CUstream stream)
      : bytes_(one_case.bytes), slots_(static_cast<std::size_t>(one_case.slots())), credits_(one_case.needs_credits()),
        stream_(stream), target_(round_up((2 * slots_ + 1) * kWord)), source_(target_ + round_up(slots_ * bytes_)),
        memory_(rank, source_ + round_up(slots_ * bytes_)), put_(slots_), waited_(slots_) {
    operations_.reserve(slots_);
  }

  void put(int first, int count) override {
    if (credits_)
      wait_for(
          credit(memory_.mine(), first), count, [&](std::size_t slot) { return put_[slot]; }, first);
    for (int slot = first; slot < first + count; ++slot) {
      const std::size_t at = static_cast<std::size_t>(slot) * bytes_;
      if (bytes_ > 0)
        check(cuda_.cuMemcpyDtoDAsync(memory_.theirs() + target_ + at, memory_.mine() + source_ + at, bytes_, stream_),
              "cuMemcpyDtoDAsync");
    }
    write(
        signal(memory_.theirs(), first), count, [&](std::size_t slot) { return ++put_[slot]; }, first);
  }

  void wait(int first, int count) override {
    wait_for(
        signal(memory_.mine(), first), count, [&](std::size_t slot) { return ++waited_[slot]; }, first);
  }

  void release(int first, int count) override {
    write(
        credit(memory_.theirs(), first), count, [&](std::size_t slot) { return waited_[slot]; }, first);
  }

  void notify() override {
    check(cuda_.cuStreamWriteValue64(stream_, notice(memory_.theirs()), ++notified_, 0), "cuStreamWriteValue64");
  }
  void await_notice() override {
    check(cuda_.cuStreamWaitValue64(stream_, notice(memory_.mine()), ++noticed_, CU_STREAM_WAIT_VALUE_GEQ),
          "cuStreamWaitValue64");
  }

 private:
  CUdeviceptr signal(CUdeviceptr memory, int slot) const { return memory + static_cast<std::size_t>(slot) * kWord; }
  CUdeviceptr credit(CUdeviceptr memory, int slot) const { return signal(memory, slot) + slots_ * kWord; }
  CUdeviceptr notice(CUdeviceptr memory) const { return memory + 2 * slots_ * kWord; }

  template <class Value>
  void write(CUdeviceptr word, int count, Value value, int first) {
    operations_.clear();
    for (int i = 0; i < count; ++i) {
      CUstreamBatchMemOpParams operation{};
      operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
      operation.writeValue.address = word + static_cast<std::size_t>(i) * kWord;
      operation.writeValue.value64 = value(static_cast<std::size_t>(first + i));
      operations_.push_back(operation);
    }
    if (count > 1) return operate();
    const auto& only = operations_.front().writeValue;
    check(cuda_.cuStreamWriteValue64(stream_, only.address, only.value64, 0), "cuStreamWriteValue64");
  }

  template <class Value>
  void wait_for(CUdeviceptr word, int count, Value value, int first) {
    operations_.clear();
    for (int i = 0; i < count; ++i) {
      CUstreamBatchMemOpParams operation{};
      operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
      operation.waitValue.address = word + static_cast<std::size_t>(i) * kWord;
      operation.waitValue.value64 = value(static_cast<std::size_t>(first + i));
      operation.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
      operations_.push_back(operation);
    }
    if (count > 1) return operate();
    const auto& only = operations_.front().waitValue;
    check(cuda_.cuStreamWaitValue64(stream_, only.address, only.value64, CU_STREAM_WAIT_VALUE_GEQ),
          "cuStreamWaitValue64");
  }

  void operate() {
    check(cuda_.cuStreamBatchMemOp(stream_, static_cast<unsigned>(operations_.size()), operations_.data(), 0),
          "cuStreamBatchMemOp");
  }

  const Cuda& cuda_ = Cuda::here();
  const std::size_t bytes_;
  const std::size_t slots_;
  const bool credits_;
  const CUstream stream_;
  const std::size_t target_;  // where it begins, behind a signal and a credit for each slot, and a notice
  const std::size_t source_;
  rivals::SharedMemory memory_;
  std::vector<std::uint64_t> put_;  // messages of each slot
  std::vector<std::uint64_t> waited_;
  std::uint64_t notified_ = 0;
  std::uint64_t noticed_ = 0;
  std::vector<CUstreamBatchMemOpParams> operations_;
};

}  // namespace

int main(int argc, char** argv) {
  return rivals::serve(argc, argv,
                       {.check = [](const rivals::Rank&) { static_cast<void>(Cuda::here()); },
                        .open =
                            [](const rivals::Case& one_case, const rivals::Rank& rank) {
                              return rivals::on_stream(one_case, rank, [&](CUstream stream) {
                                return std::make_unique<Raw>(one_case, rank, stream);
                              });
                            }});
}
