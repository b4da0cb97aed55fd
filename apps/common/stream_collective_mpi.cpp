// SPDX-License-Identifier: Apache-2.0
#include "apps/common/mpi_world.hpp"
#include "apps/common/stream_collective.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace apps {
namespace {

// One request, made once where MPI can, or by each start.
class MpiCollective : public StreamCollective {
 public:
  MpiCollective(MpiRequests requests, const std::vector<int>& ranks)
      : group_(shared_group(ranks)), persistent_(requests == MpiRequests::persistent && MPI_VERSION >= 4) {}
  MpiCollective(const MpiCollective&) = delete;
  MpiCollective& operator=(const MpiCollective&) = delete;
  ~MpiCollective() override {
    if (persistent_ && request_ != MPI_REQUEST_NULL) MPI_Request_free(&request_);
  }

  void start() override {
    if (!persistent_) return start_once();
    if (request_ == MPI_REQUEST_NULL) init();
    MPI_Start(&request_);
  }
  void wait() override { MPI_Wait(&request_, MPI_STATUS_IGNORE); }

 protected:
  MPI_Comm communicator() const { return group_->communicator(); }
  MPI_Request* request() { return &request_; }

 private:
  virtual void start_once() = 0;
  virtual void init() = 0;

  std::shared_ptr<const MpiGroup> group_;
  bool persistent_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class MpiSum : public MpiCollective {
 public:
  MpiSum(const sluice::Slice& numbers, MpiRequests requests)
      : MpiCollective(requests, world_ranks()), numbers_(numbers) {
    check_counts(communicator(), numbers.bytes() / sizeof(double), "a sum", "numbers");
  }

 private:
  void start_once() override {
    MPI_Iallreduce(MPI_IN_PLACE, numbers_.data(), count(), MPI_DOUBLE, MPI_SUM, communicator(), request());
  }
  void init() override {
#if MPI_VERSION >= 4
    MPI_Allreduce_init(MPI_IN_PLACE, numbers_.data(), count(), MPI_DOUBLE, MPI_SUM, communicator(), MPI_INFO_NULL,
                       request());
#endif
  }
  int count() const { return static_cast<int>(numbers_.bytes() / sizeof(double)); }

  sluice::Slice numbers_;
};

// The blocks of one direction: numbers of doubles, in the order of ranks.
struct Layout {
  explicit Layout(std::vector<sluice::Block> blocks_in) : blocks(std::move(blocks_in)) {
    std::ranges::sort(blocks, {}, &sluice::Block::peer);
    for (const sluice::Block& block : blocks) {
      peers.push_back(block.peer);
      counts.push_back(static_cast<int>(block.slice.bytes() / sizeof(double)));
      offsets.push_back(static_cast<int>(offset(block)));
    }
  }
  std::byte* base() const { return blocks.front().slice.data(); }
  std::size_t offset(const sluice::Block& block) const {
    return static_cast<std::size_t>(block.slice.data() - base()) / sizeof(double);
  }
  /// How many numbers there are up to the end of the last block.
  std::size_t largest() const {
    std::size_t most = 0;
    for (const sluice::Block& block : blocks)
      most = std::max(most, offset(block) + block.slice.bytes() / sizeof(double));
    return most;
  }

  std::vector<sluice::Block> blocks;
  std::vector<int> peers;
  std::vector<int> counts;
  std::vector<int> offsets;
};

class MpiAlltoall : public MpiCollective {
 public:
  MpiAlltoall(const GroupBlocks& blocks, MpiRequests requests)
      : MpiAlltoall(Layout(blocks.from), Layout(blocks.to), requests) {}

 private:
  MpiAlltoall(Layout from, Layout to, MpiRequests requests)
      : MpiCollective(requests, from.peers), from_(std::move(from)), to_(std::move(to)) {
    check_counts(MPI_COMM_WORLD, std::max(from_.largest(), to_.largest()), "an exchange", "numbers");
  }

  void start_once() override {
    MPI_Ialltoallv(from_.base(), from_.counts.data(), from_.offsets.data(), MPI_DOUBLE, to_.base(), to_.counts.data(),
                   to_.offsets.data(), MPI_DOUBLE, communicator(), request());
  }
  void init() override {
#if MPI_VERSION >= 4
    MPI_Alltoallv_init(from_.base(), from_.counts.data(), from_.offsets.data(), MPI_DOUBLE, to_.base(),
                       to_.counts.data(), to_.offsets.data(), MPI_DOUBLE, communicator(), MPI_INFO_NULL, request());
#endif
  }

  Layout from_;
  Layout to_;
};

}  // namespace

std::unique_ptr<StreamCollective> make_mpi_sum(const sluice::Slice& numbers, MpiRequests requests) {
  return std::make_unique<MpiSum>(numbers, requests);
}

std::unique_ptr<StreamCollective> make_mpi_alltoall(const GroupBlocks& blocks, MpiRequests requests) {
  return std::make_unique<MpiAlltoall>(blocks, requests);
}

}  // namespace apps
