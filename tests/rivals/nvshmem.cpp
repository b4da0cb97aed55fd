// SPDX-License-Identifier: Apache-2.0
// NVSHMEM's operations on streams: a put with its signal, and waits.
#include "tests/rivals/cuda.hpp"

#include <nvshmem_host.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <vector>

namespace {

using rivals::Cuda;

// Once for all cases.
void start(const rivals::Rank& rank) {
  static bool started = false;
  if (started) return;
  Cuda::here().use(rank.device);
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  if (rank.rank == 0 && nvshmemx_get_uniqueid(&id) != 0) throw std::runtime_error("nvshmemx_get_uniqueid failed");
  const nvshmemx_uniqueid_t theirs = rank.exchange(id);
  if (rank.rank != 0) id = theirs;
  nvshmemx_init_attr_t how = NVSHMEMX_INIT_ATTR_INITIALIZER;
  if (nvshmemx_set_attr_uniqueid_args(rank.rank, 2, &id, &how) != 0 ||
      nvshmemx_hostlib_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &how) != 0)
    throw std::runtime_error("nvshmemx_hostlib_init_attr failed");
  started = true;
}

class PutSignal : public rivals::Verbs {
 public:
  PutSignal(const rivals::Case& one_case, const rivals::Rank& rank, CUstream stream)
      : bytes_(one_case.bytes), slots_(static_cast<std::size_t>(one_case.slots())), credits_(one_case.needs_credits()),
        waits_by_driver_(Cuda::here().ranks_take_turns()), peer_(1 - rank.rank), stream_(stream), put_(slots_),
        waited_(slots_) {
    start(rank);
    words_ = static_cast<std::uint64_t*>(nvshmem_calloc(2 * slots_ + 1, sizeof(std::uint64_t)));
    data_ = static_cast<char*>(nvshmem_calloc(std::max<std::size_t>(2 * slots_ * bytes_, 1), 1));
    if (words_ == nullptr || data_ == nullptr) throw std::runtime_error("nvshmem_calloc failed");
  }
  ~PutSignal() override {
    if (std::uncaught_exceptions() > 0) return;  // this process ends; the other one would have to free too
    nvshmem_free(data_);
    nvshmem_free(words_);
  }
  PutSignal(const PutSignal&) = delete;
  PutSignal& operator=(const PutSignal&) = delete;

  Slots slots() const override { return {data_ + slots_ * bytes_, data_}; }

  void put(int first, int count) override {
    for (std::size_t slot : range(first, count)) {
      if (credits_) wait_for(credit(slot), put_[slot]);
      char* const target = data_ + slot * bytes_;
      const char* const source = target + slots_ * bytes_;
      if (bytes_ > 0) {
        nvshmemx_putmem_signal_on_stream(target, source, bytes_, signal(slot), ++put_[slot], NVSHMEM_SIGNAL_SET, peer_,
                                         stream_);
      } else {
        set(signal(slot), ++put_[slot]);
      }
    }
  }
  void wait(int first, int count) override {
    for (std::size_t slot : range(first, count)) wait_for(signal(slot), ++waited_[slot]);
  }
  void release(int first, int count) override {
    for (std::size_t slot : range(first, count)) set(credit(slot), waited_[slot]);
  }
  void notify() override { set(notice(), ++notified_); }
  void await_notice() override { wait_for(notice(), ++noticed_); }

 private:
  static std::vector<std::size_t> range(int first, int count) {
    std::vector<std::size_t> slots;
    for (int slot = first; slot < first + count; ++slot) slots.push_back(static_cast<std::size_t>(slot));
    return slots;
  }
  std::uint64_t* signal(std::size_t slot) const { return words_ + slot; }
  std::uint64_t* credit(std::size_t slot) const { return words_ + slots_ + slot; }
  std::uint64_t* notice() const { return words_ + 2 * slots_; }

  void set(std::uint64_t* word, std::uint64_t value) {
    nvshmemx_signal_op_on_stream(word, value, NVSHMEM_SIGNAL_SET, peer_, stream_);
  }
  // Where PEs share a GPU without MPS, NVSHMEM ends a program that waits on a stream.
  void wait_for(std::uint64_t* word, std::uint64_t value) {
    if (!waits_by_driver_) return nvshmemx_signal_wait_until_on_stream(word, NVSHMEM_CMP_GE, value, stream_);
    rivals::check(
        Cuda::here().cuStreamWaitValue64(stream_, reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WAIT_VALUE_GEQ),
        "cuStreamWaitValue64");
  }

  const std::size_t bytes_;
  const std::size_t slots_;
  const bool credits_;
  const bool waits_by_driver_;
  const int peer_;
  CUstream stream_;
  std::uint64_t* words_ = nullptr;  // a signal and a credit for each slot, and a notice
  char* data_ = nullptr;            // the target, then the source
  std::vector<std::uint64_t> put_;  // messages of each slot
  std::vector<std::uint64_t> waited_;
  std::uint64_t notified_ = 0;
  std::uint64_t noticed_ = 0;
};

void check_here(const rivals::Rank& /*rank*/) {
  static_cast<void>(Cuda::here());
  // Both ranks are on this machine. With NCCL at hand, NVSHMEM would load it too.
  ::setenv("NVSHMEM_REMOTE_TRANSPORT", "none", 0);
  ::setenv("NVSHMEM_DISABLE_NCCL", "1", 0);
}

}  // namespace

int main(int argc, char** argv) {
  return rivals::serve(argc, argv,
                       {.check = check_here, .open = [](const rivals::Case& one_case, const rivals::Rank& rank) {
                          return rivals::on_stream(one_case, rank, [&](CUstream stream) {
                            return std::make_unique<PutSignal>(one_case, rank, stream);
                          });
                        }});
}
