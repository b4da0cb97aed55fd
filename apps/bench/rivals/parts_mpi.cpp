// SPDX-License-Identifier: Apache-2.0
// The hash table by MPI's windows, and three protocols of sparse exchanges.
#include "apps/bench/harness/hash_table.hpp"
#include "apps/bench/harness/sparse_exchange.hpp"
#include "apps/bench/rivals/mpi.hpp"
#include "apps/common/mpi_world.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <vector>

namespace bench {
namespace {

/// The bytes of a window of MPI's for so many. MPICH 4.0.2 reaches other bytes than the owner's, without an error, if
/// the part of a rank is no multiple of 64 bytes.
MPI_Aint window_bytes(std::size_t bytes) { return static_cast<MPI_Aint>(whole_pages(bytes)); }

/// Parts (harness/parts.hpp) of a window that MPI allocates, locked for all ranks as long as this object lives.
class MpiParts {
 public:
  MpiParts(const Workload& /*workload*/, const PartBytes& bytes) : local_(bytes.local) {
    MPI_Win_allocate(window_bytes(bytes.part), 1, MPI_INFO_NULL, world_.communicator(), static_cast<void*>(&part_),
                     &window_);
    std::memset(part_, 0, bytes.part);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
  }
  ~MpiParts() {
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }
  MpiParts(const MpiParts&) = delete;
  MpiParts& operator=(const MpiParts&) = delete;

  std::byte* part() const { return part_; }
  std::byte* local() const { return local_.data(); }

  Word compare_swap(int rank, std::size_t at, Word expected, Word desired) const {
    Word old = 0;
    MPI_Compare_and_swap(&desired, &expected, &old, MPI_UINT64_T, rank, static_cast<MPI_Aint>(at), window_);
    MPI_Win_flush_local(rank, window_);
    return old;
  }
  Word fetch_add(int rank, std::size_t at, Word value) const { return change(rank, at, value, MPI_SUM); }
  Word swap(int rank, std::size_t at, Word value) const { return change(rank, at, value, MPI_REPLACE); }
  void put(int rank, std::size_t from, std::size_t bytes, std::size_t at) const {
    const int count = static_cast<int>(bytes);
    MPI_Put(local() + from, count, MPI_BYTE, rank, static_cast<MPI_Aint>(at), count, MPI_BYTE, window_);
  }
  void meet() const {
    MPI_Win_flush_all(window_);
    MPI_Win_sync(window_);
    MPI_Barrier(world_.communicator());
    MPI_Win_sync(window_);
  }

 private:
  Word change(int rank, std::size_t at, Word value, MPI_Op op) const {
    Word old = 0;
    MPI_Fetch_and_op(&value, &old, MPI_UINT64_T, rank, static_cast<MPI_Aint>(at), op, window_);
    MPI_Win_flush_local(rank, window_);
    return old;
  }

  apps::MpiWorld world_;
  Pages local_;
  std::byte* part_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};

/// What the exchanges by messages have in common. A tag is that of every second round: a rank that has received all of
/// a round may get messages of the next one while another rank still looks for those of this one.
class MessageExchange {
 public:
  MessageExchange(const Workload& /*workload*/, std::size_t bytes)
      : bytes_(static_cast<int>(bytes)), out_(kMostMessages * bytes), in_(bytes) {}

  std::byte* message(std::size_t i) const { return out_.data() + i * static_cast<std::size_t>(bytes_); }

 protected:
  MPI_Comm world() const { return world_.communicator(); }
  int tag() const { return static_cast<int>(rounds_ % 2); }

  template <class Receive>
  void receive_from(int rank, Receive& receive) {
    MPI_Recv(in_.data(), bytes_, MPI_BYTE, rank, tag(), world(), MPI_STATUS_IGNORE);
    receive(static_cast<const std::byte*>(in_.data()));
  }

  const int bytes_;
  std::array<MPI_Request, kMostMessages> requests_{};
  Word rounds_ = 0;

 private:
  apps::MpiWorld world_;
  Pages out_;
  Pages in_;
};

/// NBX of the paper: synchronous sends have completed when they are received; a rank whose sends have completed enters
/// a barrier that does not block, and receives until all ranks have entered it.
class NbxExchange : public MessageExchange {
 public:
  using MessageExchange::MessageExchange;

  template <class Receive>
  void run(std::span<const int> to, Receive receive) {
    for (std::size_t i = 0; i < to.size(); ++i)
      MPI_Issend(message(i), bytes_, MPI_BYTE, to[i], tag(), world(), &requests_[i]);
    MPI_Request barrier = MPI_REQUEST_NULL;
    bool entered = false;
    for (int done = 0; done == 0 || !entered;) {
      MPI_Status status;
      int found = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, tag(), world(), &found, &status);
      if (found != 0) receive_from(status.MPI_SOURCE, receive);
      if (entered) {
        MPI_Test(&barrier, &done, MPI_STATUS_IGNORE);
        continue;
      }
      MPI_Testall(static_cast<int>(to.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
      if (done == 0) continue;
      MPI_Ibarrier(world(), &barrier);
      entered = true;
      done = 0;
    }
    ++rounds_;
  }
};

/// RSX of the paper: ranks add up in a window how many messages each will get; after a fence each receives so many.
class RsxExchange : public MessageExchange {
 public:
  RsxExchange(const Workload& workload, std::size_t bytes)
      : MessageExchange(workload, bytes), to_each_(static_cast<std::size_t>(workload.context.size())) {
    MPI_Win_allocate(window_bytes(2 * sizeof(Word)), sizeof(Word), MPI_INFO_NULL, world(),
                     static_cast<void*>(&expected_), &window_);
    std::fill_n(expected_, 2, 0);
    MPI_Win_fence(MPI_MODE_NOPRECEDE, window_);
  }
  ~RsxExchange() {
    MPI_Win_fence(MPI_MODE_NOSUCCEED, window_);
    MPI_Win_free(&window_);
  }
  RsxExchange(const RsxExchange&) = delete;
  RsxExchange& operator=(const RsxExchange&) = delete;

  template <class Receive>
  void run(std::span<const int> to, Receive receive) {
    std::ranges::fill(to_each_, 0);
    for (std::size_t i = 0; i < to.size(); ++i) {
      MPI_Isend(message(i), bytes_, MPI_BYTE, to[i], tag(), world(), &requests_[i]);
      ++to_each_[static_cast<std::size_t>(to[i])];
    }
    for (std::size_t rank = 0; rank < to_each_.size(); ++rank) {
      if (to_each_[rank] > 0)
        MPI_Accumulate(&to_each_[rank], 1, MPI_UINT64_T, static_cast<int>(rank), tag(), 1, MPI_UINT64_T, MPI_SUM,
                       window_);
    }
    MPI_Win_fence(0, window_);
    Word& expected = expected_[tag()];
    for (; expected > 0; --expected) receive_from(MPI_ANY_SOURCE, receive);
    MPI_Waitall(static_cast<int>(to.size()), requests_.data(), MPI_STATUSES_IGNORE);
    ++rounds_;
  }

 private:
  std::vector<Word> to_each_;
  Word* expected_ = nullptr;  // for every second round one
  MPI_Win window_ = MPI_WIN_NULL;
};

}  // namespace

std::unique_ptr<Contender> make_mpi_hash_table(const Workload& workload) {
  return std::make_unique<HashTableContender<MpiParts>>(workload);
}
std::unique_ptr<Contender> make_mpi_inbox_exchange(const Workload& workload) {
  return std::make_unique<SparseContender<InboxExchange<MpiParts>>>(workload);
}
std::unique_ptr<Contender> make_mpi_nbx_exchange(const Workload& workload) {
  return std::make_unique<SparseContender<NbxExchange>>(workload);
}
std::unique_ptr<Contender> make_mpi_rsx_exchange(const Workload& workload) {
  return std::make_unique<SparseContender<RsxExchange>>(workload);
}

}  // namespace bench
