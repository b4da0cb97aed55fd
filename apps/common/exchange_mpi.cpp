// SPDX-License-Identifier: Apache-2.0
#include "apps/common/exchange.hpp"
#include "apps/common/mpi_world.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace apps {

namespace {

constexpr int kMpiHaloTag = 0;

int byte_count(const Link& link) { return static_cast<int>(link.bytes()); }

void check_lengths(const MpiWorld& world, const Links& links) {
  unsigned long long longest = 0;
  for (const auto* side : {&links.in, &links.out})
    for (const Link& link : *side) longest = std::max<unsigned long long>(longest, link.bytes());
  check_counts(world.communicator(), longest, "a halo message", "bytes");
}

using Requests = std::vector<MPI_Request>;

void start_all(Requests& requests) { MPI_Startall(static_cast<int>(requests.size()), requests.data()); }

void wait_all(Requests& requests) {
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

// Both slots' receives are posted ahead, so that each message finds one: the eager protocol then needs no extra copy.
class PersistentExchange : public Exchange {
 public:
  explicit PersistentExchange(const Links& links) {
    check_lengths(world_, links);
    for (int slot = 0; slot < kSlots; ++slot) {
      for (const Link& link : links.in)
        MPI_Recv_init(link.slot(slot), byte_count(link), MPI_BYTE, link.peer, kMpiHaloTag, world_.communicator(),
                      &receives_[slot].emplace_back());
      for (const Link& link : links.out)
        MPI_Send_init(link.slot(slot), byte_count(link), MPI_BYTE, link.peer, kMpiHaloTag, world_.communicator(),
                      &sends_[slot].emplace_back());
    }
    // Two messages of a pair match in the order of their receives, and the first exchange uses slot 1.
    for (int k = 1; k <= kSlots; ++k) start(k % kSlots);
  }

  PersistentExchange(const PersistentExchange&) = delete;
  PersistentExchange& operator=(const PersistentExchange&) = delete;

  ~PersistentExchange() override {
    for (int slot = 0; slot < kSlots; ++slot) {
      Requests& requests = receives_[slot];
      for (MPI_Request& request : requests)
        if (started_[slot]) MPI_Cancel(&request);
      wait_all(requests);
      for (MPI_Request& request : requests) MPI_Request_free(&request);
    }
    for (Requests& requests : sends_) {
      wait_all(requests);
      for (MPI_Request& request : requests) MPI_Request_free(&request);
    }
  }

  int acquire() override {
    slot_ = (slot_ + 1) % kSlots;
    wait_all(sends_[slot_]);
    return slot_;
  }
  void put() override { start_all(sends_[slot_]); }
  void wait() override {
    wait_all(receives_[slot_]);
    started_[slot_] = false;
  }
  void release() override { start(slot_); }
  std::string describe() const override { return "MPI persistent requests, two sets"; }

 private:
  void start(int slot) {
    start_all(receives_[slot]);
    started_[slot] = true;
  }

  MpiWorld world_;
  std::array<Requests, kSlots> sends_;
  std::array<Requests, kSlots> receives_;
  std::array<bool, kSlots> started_{};  // receives that may be cancelled
  int slot_ = 0;
};

// As in most programs: receives and sends are posted together, and the exchange ends when all of them have.
class RequestExchange : public Exchange {
 public:
  explicit RequestExchange(const Links& links) : links_(links) { check_lengths(world_, links); }

  int acquire() override { return 0; }
  void put() override {
    for (const Link& link : links_.in)
      MPI_Irecv(link.slot(0), byte_count(link), MPI_BYTE, link.peer, kMpiHaloTag, world_.communicator(),
                &requests_.emplace_back());
    for (const Link& link : links_.out)
      MPI_Isend(link.slot(0), byte_count(link), MPI_BYTE, link.peer, kMpiHaloTag, world_.communicator(),
                &requests_.emplace_back());
  }
  void wait() override {
    wait_all(requests_);
    requests_.clear();
  }
  void release() override {}
  std::string describe() const override { return "MPI_Irecv, MPI_Isend and MPI_Waitall"; }

 private:
  MpiWorld world_;
  Links links_;
  Requests requests_;
};

}  // namespace

std::unique_ptr<Exchange> make_mpi_exchange(const Links& links, MpiRequests requests) {
  if (requests == MpiRequests::persistent) return std::make_unique<PersistentExchange>(links);
  return std::make_unique<RequestExchange>(links);
}

}  // namespace apps
