// SPDX-License-Identifier: Apache-2.0
// MPI's calls that open and close epochs, and complete accesses.
#include <atomic>

#include "rma/mpi/calls.hpp"
#include "rma/mpi/direct.hpp"

namespace sluice::mpi_rma {
namespace {

/// False for a rank that MPI refuses.
bool has(const RmaWindow& window, int rank) { return rank == MPI_PROC_NULL || (rank >= 0 && rank < window.size); }

// The long ways of flushes. `next`: the call of MPI's. They are not inlined, since a short way needs no register that
// is saved.

[[gnu::noinline]] int flush(int rank, MPI_Win win, int (*next)(int, MPI_Win)) {
  RmaWindow* const found = find_window(win);
  if (found == nullptr || !has(*found, rank)) return next(rank, win);
  return serve(*found, [&](RmaWindow& window, Epochs::Lock& lock) {
    if (rank == MPI_PROC_NULL) return;
    window.epochs->check_locked(rank);
    order_stores();
    window.areas->drain(rank);
    poll_if_due(window, lock);
  });
}

[[gnu::noinline]] int flush_all(MPI_Win win, int (*next)(MPI_Win)) {
  RmaWindow* const found = find_window(win);
  if (found == nullptr) return next(win);
  return serve(*found, [](RmaWindow& window, Epochs::Lock& lock) {
    window.epochs->check_locked(-1);
    order_stores();
    window.areas->drain_all();
    poll_if_due(window, lock);
  });
}

}  // namespace
}  // namespace sluice::mpi_rma

using namespace sluice::mpi_rma;

#pragma GCC visibility push(default)
extern "C" {

int MPI_Win_fence(int assertion, MPI_Win win) {
  RmaWindow* const found = find_window(win);
  if (found == nullptr) SLUICE_RMA_BEHIND(Win_fence, assertion, win);
  return serve(*found, [&](RmaWindow& window, Epochs::Lock& lock) { window.epochs->fence(lock, assertion); });
}

int MPI_Win_post(MPI_Group group, int assertion, MPI_Win win) {
  RmaWindow* const found = find_window(win);
  if (found == nullptr || group == MPI_GROUP_NULL) SLUICE_RMA_BEHIND(Win_post, group, assertion, win);
  return serve(*found,
               [&](RmaWindow& window, Epochs::Lock& lock) { window.epochs->post(lock, window.ranks_of(group)); });
}

int MPI_Win_start(MPI_Group group, int assertion, MPI_Win win) {
  RmaWindow* const found = find_window(win);
  if (found == nullptr || group == MPI_GROUP_NULL) SLUICE_RMA_BEHIND(Win_start, group, assertion, win);
  return serve(*found,
               [&](RmaWindow& window, Epochs::Lock& lock) { window.epochs->start(lock, window.ranks_of(group)); });
}

int MPI_Win_complete(MPI_Win win) {
  RmaWindow* const found = find_window(win);
  if (found == nullptr) SLUICE_RMA_BEHIND(Win_complete, win);
  return serve(*found, [](RmaWindow& window, Epochs::Lock& lock) { window.epochs->complete(lock); });
}

int MPI_Win_wait(MPI_Win win) {
  RmaWindow* const found = find_window(win);
  if (found == nullptr) SLUICE_RMA_BEHIND(Win_wait, win);
  return serve(*found, [](RmaWindow& window, Epochs::Lock& lock) { window.epochs->wait(lock); });
}

int MPI_Win_test(MPI_Win win, int* flag) {
  RmaWindow* const found = find_window(win);
  if (found == nullptr) SLUICE_RMA_BEHIND(Win_test, win, flag);
  return serve(*found, [&](RmaWindow& window, Epochs::Lock& lock) {
    const bool done = window.epochs->test(lock);
    *flag = done ? 1 : 0;
    lock.unlock();
    if (!done) poll(*window.ranks);
  });
}

int MPI_Win_lock(int type, int rank, int assertion, MPI_Win win) {
  if (lock_directly(win, type, rank, assertion)) return MPI_SUCCESS;
  RmaWindow* const found = find_window(win);
  const bool known = type == MPI_LOCK_SHARED || type == MPI_LOCK_EXCLUSIVE;
  if (found == nullptr || !known || !has(*found, rank))
    SLUICE_RMA_BEHIND(Win_lock, type, rank_at_mpi(win, rank), assertion, win);
  if (rank == MPI_PROC_NULL) return MPI_SUCCESS;
  return serve(*found,
               [&](RmaWindow& window, Epochs::Lock& lock) { window.epochs->lock(lock, type, rank, assertion); });
}

int MPI_Win_unlock(int rank, MPI_Win win) {
  if (unlock_directly(win, rank)) return MPI_SUCCESS;
  RmaWindow* const found = find_window(win);
  if (found == nullptr || !has(*found, rank)) SLUICE_RMA_BEHIND(Win_unlock, rank, win);
  if (rank == MPI_PROC_NULL) return MPI_SUCCESS;
  return serve(*found, [&](RmaWindow& window, Epochs::Lock& lock) {
    window.epochs->unlock(lock, rank);
    poll_if_due(window, lock);
  });
}

int MPI_Win_lock_all(int assertion, MPI_Win win) {
  RmaWindow* const found = find_window(win);
  if (found == nullptr) SLUICE_RMA_BEHIND(Win_lock_all, assertion, win);
  return serve(*found, [&](RmaWindow& window, Epochs::Lock& lock) { window.epochs->lock_all(lock, assertion); });
}

int MPI_Win_unlock_all(MPI_Win win) {
  RmaWindow* const found = find_window(win);
  if (found == nullptr) SLUICE_RMA_BEHIND(Win_unlock_all, win);
  return serve(*found, [](RmaWindow& window, Epochs::Lock& lock) {
    window.epochs->unlock_all(lock);
    poll_if_due(window, lock);
  });
}

int MPI_Win_flush(int rank, MPI_Win win) {
  if (flush_directly(win, rank)) return MPI_SUCCESS;
  return flush(rank, win, [](int to, MPI_Win its) { SLUICE_RMA_BEHIND(Win_flush, to, its); });
}

int MPI_Win_flush_local(int rank, MPI_Win win) {
  if (flush_directly(win, rank)) return MPI_SUCCESS;
  return flush(rank, win, [](int to, MPI_Win its) { SLUICE_RMA_BEHIND(Win_flush_local, to, its); });
}

int MPI_Win_flush_all(MPI_Win win) {
  if (flush_all_directly(win)) return MPI_SUCCESS;
  return flush_all(win, [](MPI_Win its) { SLUICE_RMA_BEHIND(Win_flush_all, its); });
}

int MPI_Win_flush_local_all(MPI_Win win) {
  if (flush_all_directly(win)) return MPI_SUCCESS;
  return flush_all(win, [](MPI_Win its) { SLUICE_RMA_BEHIND(Win_flush_local_all, its); });
}

int MPI_Win_sync(MPI_Win win) {
  const RmaWindow* const found = find_window(win);
  if (found == nullptr) SLUICE_RMA_BEHIND(Win_sync, win);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  thread_local Looks looks;  // the call needs no lock
  if (looks.due()) poll(*found->ranks);
  return MPI_SUCCESS;
}

}  // extern "C"
#pragma GCC visibility pop
