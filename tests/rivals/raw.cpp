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
    gathered_.reserve(slots_);
  }

  Slots slots() const override {
    return {reinterpret_cast<void*>(memory_.mine() + source_), reinterpret_cast<void*>(memory_.mine() + target_)};
  }

  void put(int first, int count) override {
    if (credits_) {
      for (int slot = first; slot < first + count; ++slot) wait_for(credit(memory_.mine(), slot), put_.at(slot));
      issue();
    }
    for (int slot = first; slot < first + count; ++slot) copy(slot * bytes_);
    for (int slot = first; slot < first + count; ++slot) write(signal(memory_.theirs(), slot), ++put_.at(slot));
    issue();
  }

  void wait(int first, int count) override {
    for (int slot = first; slot < first + count; ++slot) wait_for(signal(memory_.mine(), slot), ++waited_.at(slot));
    issue();
  }

  void release(int first, int count) override {
    for (int slot = first; slot < first + count; ++slot) write(credit(memory_.theirs(), slot), waited_.at(slot));
    issue();
  }

  void notify() override {
    write(notice(memory_.theirs()), ++notified_);
    issue();
  }
  void await_notice() override {
    wait_for(notice(memory_.mine()), ++noticed_);
    issue();
  }

 private:
  CUdeviceptr signal(CUdeviceptr memory, int slot) const { return memory + slot * kWord; }
  CUdeviceptr credit(CUdeviceptr memory, int slot) const { return signal(memory, slot) + slots_ * kWord; }
  CUdeviceptr notice(CUdeviceptr memory) const { return memory + 2 * slots_ * kWord; }

  void copy(std::size_t at) {
    if (bytes_ == 0) return;
    check(cuda_.cuMemcpyDtoDAsync(memory_.theirs() + target_ + at, memory_.mine() + source_ + at, bytes_, stream_),
          "cuMemcpyDtoDAsync");
  }

  void write(CUdeviceptr word, std::uint64_t value) {
    CUstreamBatchMemOpParams operation{};
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    operation.writeValue.address = word;
    operation.writeValue.value64 = value;
    gathered_.push_back(operation);
  }

  void wait_for(CUdeviceptr word, std::uint64_t value) {
    CUstreamBatchMemOpParams operation{};
    operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    operation.waitValue.address = word;
    operation.waitValue.value64 = value;
    operation.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    gathered_.push_back(operation);
  }

  // What was gathered, in the call that is the shortest way to it.
  void issue() {
    const CUstreamBatchMemOpParams& first = gathered_.front();
    if (gathered_.size() > 1) {
      check(cuda_.cuStreamBatchMemOp(stream_, static_cast<unsigned>(gathered_.size()), gathered_.data(), 0),
            "cuStreamBatchMemOp");
    } else if (first.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64) {
      check(cuda_.cuStreamWriteValue64(stream_, first.writeValue.address, first.writeValue.value64, 0),
            "cuStreamWriteValue64");
    } else {
      check(cuda_.cuStreamWaitValue64(stream_, first.waitValue.address, first.waitValue.value64, first.waitValue.flags),
            "cuStreamWaitValue64");
    }
    gathered_.clear();
  }

  const Cuda& cuda_ = Cuda::here();
  const std::size_t bytes_;
  const std::size_t slots_;
  const bool credits_;
  CUstream stream_;
  const std::size_t target_;  // where it begins, behind a signal and a credit for each slot, and a notice
  const std::size_t source_;
  rivals::SharedMemory memory_;
  std::vector<std::uint64_t> put_;  // messages of each slot
  std::vector<std::uint64_t> waited_;
  std::uint64_t notified_ = 0;
  std::uint64_t noticed_ = 0;
  std::vector<CUstreamBatchMemOpParams> gathered_;  // operations that go together
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
