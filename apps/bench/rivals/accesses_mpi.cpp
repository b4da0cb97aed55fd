// SPDX-License-Identifier: Apache-2.0
// Accesses to windows, each ended by a flush or by the end of its epoch.
#include "apps/bench/harness/accesses.hpp"
#include "apps/bench/rivals/mpi.hpp"
#include "apps/common/mpi_world.hpp"

#include <mpi.h>

namespace bench {
namespace {

/// A Way (harness/accesses.hpp): a window that MPI allocates, locked for all ranks as long as this object lives, unless
/// the bench measures epochs. The owner waits in MPI_Recv, where it serves MPIs that need its help.
class MpiWay {
 public:
  MpiWay(const Workload& workload, const AccessLayout& layout)
      : epochs_(is_of_epochs(workload.access)), peer_(workload.peer), bytes_(static_cast<int>(layout.message)),
        words_(static_cast<int>(layout.message / sizeof(Word))), local_(layout.payload) {
    MPI_Win_allocate(static_cast<MPI_Aint>(layout.window), 1, MPI_INFO_NULL, world_.communicator(),
                     static_cast<void*>(&memory_), &window_);
    if (!epochs_) MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
    if (workload.access == Access::fence) MPI_Win_fence(MPI_MODE_NOPRECEDE, window_);
    if (workload.access != Access::post) return;
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Comm_group(world_.communicator(), &world);
    MPI_Group_incl(world, 1, &peer_, &group_);
    MPI_Group_free(&world);
  }
  ~MpiWay() {
    if (group_ != MPI_GROUP_NULL) MPI_Group_free(&group_);
    if (!epochs_) MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }
  MpiWay(const MpiWay&) = delete;
  MpiWay& operator=(const MpiWay&) = delete;

  std::byte* window() const { return memory_; }
  std::byte* local() const { return local_.data(); }

  void put() const {
    start_put(0);
    flush();
  }
  void get(std::size_t at) const {
    MPI_Get(local(), bytes_, MPI_BYTE, peer_, static_cast<MPI_Aint>(kPayloadAt + at), bytes_, MPI_BYTE, window_);
    flush();
  }
  Word fetch_add(Word value) const {
    Word old = 0;
    MPI_Fetch_and_op(&value, &old, MPI_UINT64_T, peer_, 0, MPI_SUM, window_);
    flush();
    return old;
  }
  Word compare_swap(Word expected, Word desired) const {
    Word old = 0;
    MPI_Compare_and_swap(&desired, &expected, &old, MPI_UINT64_T, peer_, 0, window_);
    flush();
    return old;
  }
  void accumulate() const {
    MPI_Accumulate(local(), words_, MPI_UINT64_T, peer_, kPayloadAt, words_, MPI_UINT64_T, MPI_SUM, window_);
    flush();
  }
  void flush() const { MPI_Win_flush(peer_, window_); }

  void notify() {
    sync();
    MPI_Send(nullptr, 0, MPI_BYTE, peer_, 0, world_.communicator());
  }
  void await_notice() {
    MPI_Recv(nullptr, 0, MPI_BYTE, peer_, 0, world_.communicator(), MPI_STATUS_IGNORE);
    sync();
  }
  void finish_run() {}

  void put_and_fence(std::size_t at) const {
    start_put(at);
    MPI_Win_fence(0, window_);
  }
  void put_exposed() const {
    MPI_Win_post(group_, 0, window_);
    MPI_Win_start(group_, 0, window_);
    start_put(0);
    MPI_Win_complete(window_);
    MPI_Win_wait(window_);
  }
  void put_locked(bool exclusive) const {
    MPI_Win_lock(exclusive ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, peer_, 0, window_);
    start_put(0);
    MPI_Win_unlock(peer_, window_);
  }

 private:
  /// Outside of an epoch, MPI refuses the call; there, the end of the epoch has done it.
  void sync() const {
    if (!epochs_) MPI_Win_sync(window_);
  }
  void start_put(std::size_t at) const {
    MPI_Put(local(), bytes_, MPI_BYTE, peer_, static_cast<MPI_Aint>(kPayloadAt + at), bytes_, MPI_BYTE, window_);
  }

  apps::MpiWorld world_;
  const bool epochs_;
  const int peer_;
  const int bytes_;
  const int words_;
  Pages local_;
  std::byte* memory_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  MPI_Group group_ = MPI_GROUP_NULL;
};

}  // namespace

std::unique_ptr<Contender> make_mpi_accesses(const Workload& workload) {
  return std::make_unique<AccessContender<MpiWay>>(workload);
}

}  // namespace bench
