// SPDX-License-Identifier: Apache-2.0
// MPI's calls that attach memory to windows of MPI_Win_create_dynamic.
#include "rma/mpi/calls.hpp"
#include "rma/mpi/refused.hpp"

namespace sluice::mpi_rma {
namespace {

void check_dynamic(const RmaWindow& window) {
  if (window.made.flavor == MPI_WIN_FLAVOR_DYNAMIC) return;
  throw Refused(MPI_ERR_RMA_FLAVOR, "memory is attached to windows of MPI_Win_create_dynamic alone");
}

}  // namespace
}  // namespace sluice::mpi_rma

using namespace sluice::mpi_rma;

#pragma GCC visibility push(default)
extern "C" {

int MPI_Win_attach(MPI_Win win, void* base, MPI_Aint size) {
  RmaWindow* const found = find_window(win);
  if (found == nullptr) SLUICE_RMA_BEHIND(Win_attach, win, base, size);
  return serve(*found, [&](RmaWindow& window, Epochs::Lock& lock) {
    check_dynamic(window);
    lock.unlock();
    if (size < 0) throw Refused(MPI_ERR_SIZE, "MPI_Win_attach of a negative number of bytes");
    window.attach(static_cast<std::byte*>(base), static_cast<std::size_t>(size));
  });
}

int MPI_Win_detach(MPI_Win win, const void* base) {
  RmaWindow* const found = find_window(win);
  if (found == nullptr) SLUICE_RMA_BEHIND(Win_detach, win, base);
  return serve(*found, [&](RmaWindow& window, Epochs::Lock& lock) {
    check_dynamic(window);
    lock.unlock();  // accesses of other threads go on while this one waits for peers
    window.detach(static_cast<const std::byte*>(base));
  });
}

}  // extern "C"
#pragma GCC visibility pop
