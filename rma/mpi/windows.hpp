// SPDX-License-Identifier: Apache-2.0
// The windows of this process that Sluice serves, by MPI's handles.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace sluice::mpi_rma {

class RmaWindow;

/// How often the set of windows has changed, from 1 on.
inline constinit std::atomic<std::uint64_t> g_window_changes{1};

/// The window that a thread has found last.
struct LastWindow {
  std::uint64_t changes = 0;
  MPI_Win handle = MPI_WIN_NULL;
  RmaWindow* window = nullptr;
};
inline thread_local constinit LastWindow t_last_window;

[[gnu::cold]] RmaWindow* search_window(MPI_Win handle);
/// True if the thread has found the window last. A handle of a freed window may come again.
inline bool is_last_window(MPI_Win handle) {
  const LastWindow& last = t_last_window;
  return last.changes == g_window_changes.load(std::memory_order_acquire) && last.handle == handle;
}
/// The window; null: MPI serves it, or there is no such window. Any thread.
inline RmaWindow* find_window(MPI_Win handle) {
  return is_last_window(handle) ? t_last_window.window : search_window(handle);
}
/// Like `find_window`, for a window that the thread has found last; else null.
inline RmaWindow* last_window(MPI_Win handle) { return is_last_window(handle) ? t_last_window.window : nullptr; }

// MPI_Win_free keeps a window until MPI has freed its handle. Meanwhile another thread may get that handle from MPI.

/// Replaces a window with the same handle, which MPI has freed already.
void add_window(MPI_Win handle, std::shared_ptr<RmaWindow> window);
/// Removes what stands under the handle if that is `window`, or any window if `window` is null.
void drop_window(MPI_Win handle, const RmaWindow* window);
std::vector<std::shared_ptr<RmaWindow>> take_all_windows();

}  // namespace sluice::mpi_rma
