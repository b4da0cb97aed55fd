// SPDX-License-Identifier: Apache-2.0
// NCCL: messages by ncclSend and ncclRecv (mode "send"), or by ncclPutSignal and ncclWaitSignal (mode "put").
#include "apps/bench/rivals/programs/cuda.hpp"

#include <nccl.h>
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <stdexcept>

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
#define SLUICE_NCCL_PUTS
#endif

namespace {

using rivals::Cuda;

void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) throw std::runtime_error(std::string(what) + ": " + ncclGetErrorString(result));
}

// The communicator of all workloads, which is made for the first one and lives as long as the process.
ncclComm_t communicator(const rivals::Rank& rank) {
  static ncclComm_t made = nullptr;
  if (made != nullptr) return made;
  Cuda::here().use(rank.device);
  ncclUniqueId id{};
  if (rank.rank == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const ncclUniqueId theirs = rank.exchange(id);
  check(ncclCommInitRank(&made, 2, rank.rank == 0 ? id : theirs, rank.rank), "ncclCommInitRank");
  return made;
}

/// Makes the calls one group, which NCCL sends together.
template <class Calls>
void grouped(Calls calls) {
  check(ncclGroupStart(), "ncclGroupStart");
  calls();
  check(ncclGroupEnd(), "ncclGroupEnd");
}

/// The slots of the workload in memory of NCCL, those of the target before those of the source.
class Memory {
 public:
  explicit Memory(const rivals::Workload& workload)
      : bytes_(std::max<std::size_t>(workload.bytes, 1)), slots_(static_cast<std::size_t>(workload.slots())) {
    check(ncclMemAlloc(&data_, size()), "ncclMemAlloc");
  }
  ~Memory() { static_cast<void>(ncclMemFree(data_)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }
  std::size_t size() const { return 2 * slots_ * bytes_; }
  std::size_t bytes() const { return bytes_; }
  std::size_t offset(int slot) const { return static_cast<std::size_t>(slot) * bytes_; }
  char* target(int slot) const { return static_cast<char*>(data_) + offset(slot); }
  char* source(int slot) const { return target(slot) + slots_ * bytes_; }

 private:
  const std::size_t bytes_;  // of a message, at least 1: NCCL has no empty messages
  const std::size_t slots_;
  void* data_ = nullptr;
};

// No credits are needed: NCCL sends a message when the other rank has called ncclRecv for it.
class SendRecv : public rivals::Verbs {
 public:
  SendRecv(const rivals::Workload& workload, const rivals::Rank& rank, CUstream stream)
      : communicator_(communicator(rank)), peer_(1 - rank.rank), stream_(stream), memory_(workload) {}

  Slots slots() const override { return {memory_.source(0), memory_.target(0)}; }

  void put(int first, int count) override {
    grouped([&] {
      for (int slot = first; slot < first + count; ++slot) send(slot, memory_.bytes());
    });
  }
  void wait(int first, int count) override {
    grouped([&] {
      for (int slot = first; slot < first + count; ++slot) receive(slot, memory_.bytes());
    });
  }
  void release(int /*first*/, int /*count*/) override {}
  void exchange(int first, int count) override {
    grouped([&] {
      for (int slot = first; slot < first + count; ++slot) {
        send(slot, memory_.bytes());
        receive(slot, memory_.bytes());
      }
    });
  }
  void notify() override { send(0, 1); }
  void await_notice() override { receive(0, 1); }

 private:
  void send(int slot, std::size_t bytes) {
    check(ncclSend(memory_.source(slot), bytes, ncclChar, peer_, communicator_, stream_), "ncclSend");
  }
  void receive(int slot, std::size_t bytes) {
    check(ncclRecv(memory_.target(slot), bytes, ncclChar, peer_, communicator_, stream_), "ncclRecv");
  }

  ncclComm_t communicator_;
  const int peer_;
  CUstream stream_;
  Memory memory_;
};

#ifdef SLUICE_NCCL_PUTS

// NCCL counts all signals of a rank together. So a release is one signal and a notice is one signal, and the other rank
// tells them apart by their order.
class PutSignal : public rivals::Verbs {
 public:
  PutSignal(const rivals::Workload& workload, const rivals::Rank& rank, CUstream stream)
      : credits_(workload.needs_credits()), communicator_(communicator(rank)), peer_(1 - rank.rank), stream_(stream),
        free_(workload.slots()), memory_(workload) {
    check(ncclCommWindowRegister(communicator_, memory_.data(), memory_.size(), &window_, NCCL_WIN_COLL_SYMMETRIC),
          "ncclCommWindowRegister");
  }
  ~PutSignal() override { static_cast<void>(ncclCommWindowDeregister(communicator_, window_)); }
  PutSignal(const PutSignal&) = delete;
  PutSignal& operator=(const PutSignal&) = delete;

  Slots slots() const override { return {memory_.source(0), memory_.target(0)}; }

  void put(int first, int count) override {
    if (credits_) take(count);
    grouped([&] {
      for (int slot = first; slot < first + count; ++slot)
        check(ncclPutSignal(memory_.source(slot), memory_.bytes(), ncclChar, peer_, window_, memory_.offset(slot), 0, 0,
                            0, communicator_, stream_),
              "ncclPutSignal");
    });
  }
  void wait(int /*first*/, int count) override { await(count); }
  void release(int /*first*/, int /*count*/) override { signal(); }
  void notify() override { signal(); }
  void await_notice() override {
    await(static_cast<int>(bursts_.size()) + 1);  // the releases of all puts arrive before the notice
    while (!bursts_.empty()) give_back();
  }

 private:
  // Waits until `count` slots are free. One signal releases all slots of a put.
  void take(int count) {
    for (; free_ < count; give_back()) await(1);
    free_ -= count;
    bursts_.push_back(count);
  }
  void give_back() {
    free_ += bursts_.front();
    bursts_.pop_front();
  }
  void signal() { check(ncclSignal(peer_, 0, 0, 0, communicator_, stream_), "ncclSignal"); }
  void await(int count) {
    ncclWaitSignalDesc_t signals{};
    signals.opCnt = count;
    signals.peer = peer_;
    check(ncclWaitSignal(1, &signals, communicator_, stream_), "ncclWaitSignal");
  }

  const bool credits_;
  ncclComm_t communicator_;
  const int peer_;
  CUstream stream_;
  int free_;                // free slots
  std::deque<int> bursts_;  // the number of slots of each put that was not released yet
  Memory memory_;
  ncclWindow_t window_{};
};

#endif

void check_here(const rivals::Rank& rank) {
  const bool in_turn = Cuda::here().ranks_take_turns();
  if (rank.mode == "send" && in_turn) throw std::runtime_error("its kernels need MPS where two ranks share a GPU");
#ifndef SLUICE_NCCL_PUTS
  if (rank.mode == "put") throw std::runtime_error("the NCCL that it was built with has no ncclPutSignal");
#endif
  // By default NCCL 2.30 refuses two ranks on one GPU.
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  ::setenv("NCCL_NVLS_ENABLE", "0", 0);
}

std::unique_ptr<rivals::Verbs> open(const rivals::Workload& workload, const rivals::Rank& rank, CUstream stream) {
#ifdef SLUICE_NCCL_PUTS
  if (rank.mode == "put") return std::make_unique<PutSignal>(workload, rank, stream);
#endif
  return std::make_unique<SendRecv>(workload, rank, stream);
}

}  // namespace

int main(int argc, char** argv) {
  return rivals::serve(argc, argv,
                       {.check = check_here, .open = [](const rivals::Workload& workload, const rivals::Rank& rank) {
                          return rivals::on_stream(workload, rank,
                                                   [&](CUstream stream) { return open(workload, rank, stream); });
                        }});
}
