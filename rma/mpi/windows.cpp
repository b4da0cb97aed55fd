// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/windows.hpp"

#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "rma/mpi/rma_window.hpp"

namespace sluice::mpi_rma {
namespace {

/// Never destroyed: threads may call MPI while the program ends.
struct Windows {
  std::shared_mutex mutex;
  std::map<MPI_Win, std::shared_ptr<RmaWindow>> all;
};

Windows& windows() {
  static Windows& made = *new Windows;
  return made;
}

}  // namespace

RmaWindow* search_window(MPI_Win handle) {
  Windows& known = windows();
  const std::shared_lock lock(known.mutex);
  const auto found = known.all.find(handle);
  RmaWindow* const window = found == known.all.end() ? nullptr : found->second.get();
  t_last_window = {g_window_changes.load(std::memory_order_relaxed), handle, window};
  return window;
}

void add_window(MPI_Win handle, std::shared_ptr<RmaWindow> window) {
  Windows& known = windows();
  const std::lock_guard lock(known.mutex);
  known.all[handle].swap(window);  // what stood there ends after the lock, since that closes targets
  g_window_changes.fetch_add(1, std::memory_order_release);
}

void drop_window(MPI_Win handle, const RmaWindow* window) {
  Windows& known = windows();
  std::shared_ptr<RmaWindow> dropped;  // ends after the lock
  const std::lock_guard lock(known.mutex);
  const auto found = known.all.find(handle);
  if (found == known.all.end() || (window != nullptr && found->second.get() != window)) return;
  dropped = std::move(found->second);
  known.all.erase(found);
  g_window_changes.fetch_add(1, std::memory_order_release);
}

std::vector<std::shared_ptr<RmaWindow>> take_all_windows() {
  Windows& known = windows();
  const std::lock_guard lock(known.mutex);
  std::vector<std::shared_ptr<RmaWindow>> taken;
  for (auto& [handle, window] : known.all) taken.push_back(std::move(window));
  known.all.clear();
  g_window_changes.fetch_add(1, std::memory_order_release);
  return taken;
}

}  // namespace sluice::mpi_rma
