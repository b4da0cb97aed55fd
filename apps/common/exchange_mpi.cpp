// SPDX-License-Identifier: Apache-2.0
#include "apps/common/exchange.hpp"
#include "apps/common/mpi_world.hpp"
#include "apps/common/usage_error.hpp"

#include <array>
#include <limits>
#include <string>
#include <vector>

namespace apps {

namespace {

constexpr int kHaloTag = 0;

int byte_count(Index cells, std::size_t cell_bytes) {
  const std::size_t bytes = static_cast<std::size_t>(cells) * cell_bytes;
  if (bytes > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw UsageError("a halo message of " + std::to_string(bytes) + " bytes is too long for MPI");
  return static_cast<int>(bytes);
}

void start_all(std::vector<MPI_Request>& requests) { MPI_Startall(static_cast<int>(requests.size()), requests.data()); }

void wait_all(std::vector<MPI_Request>& requests) {
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

// Both slots' receives are posted ahead, so that a message always finds one: the eager protocol then needs no extra
// copy.
class MpiExchange : public Exchange {
 public:
  MpiExchange(const Halo& halo, const HaloBuffers& buffers, std::size_t cell_bytes) {
    for (int slot = 0; slot < kSlots; ++slot)
      for (std::size_t i = 0; i < halo.messages.size(); ++i) open(halo.messages[i], i, slot, buffers, cell_bytes);
    // Two messages of a pair match in the order of their receives: the first exchange uses slot 1.
    for (int k = 1; k <= kSlots; ++k) start_all(receives_[k % kSlots]);
  }

  MpiExchange(const MpiExchange&) = delete;
  MpiExchange& operator=(const MpiExchange&) = delete;

  ~MpiExchange() override {
    for (auto& requests : receives_) {
      for (MPI_Request& request : requests) MPI_Cancel(&request);
      wait_all(requests);
      for (MPI_Request& request : requests) MPI_Request_free(&request);
    }
    for (auto& requests : sends_) {
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
  void wait() override { wait_all(receives_[slot_]); }
  void release() override { start_all(receives_[slot_]); }
  std::string describe() const override { return "MPI persistent requests, two sets"; }

 private:
  void open(const Message& message, std::size_t i, int slot, const HaloBuffers& buffers, std::size_t cell_bytes) {
    MPI_Recv_init(buffers.in(i, slot), byte_count(message.in_cells, cell_bytes), MPI_BYTE, message.peer, kHaloTag,
                  world_.communicator(), &receives_[slot].emplace_back());
    MPI_Send_init(buffers.out(i, slot), byte_count(message.out_cells, cell_bytes), MPI_BYTE, message.peer, kHaloTag,
                  world_.communicator(), &sends_[slot].emplace_back());
  }

  MpiWorld world_;
  std::array<std::vector<MPI_Request>, kSlots> sends_;
  std::array<std::vector<MPI_Request>, kSlots> receives_;
  int slot_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> make_mpi_exchange(const Halo& halo, const HaloBuffers& buffers, std::size_t cell_bytes) {
  return std::make_unique<MpiExchange>(halo, buffers, cell_bytes);
}

}  // namespace apps
