// SPDX-License-Identifier: Apache-2.0
// The windows of this process that Sluice serves, by MPI's handles.
#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

namespace sluice::mpi_rma {

class RmaWindow;

/// The window; null: MPI serves it, or there is no such window. Any thread. A handle of a freed window may come again.
RmaWindow* find_window(MPI_Win handle);
void add_window(MPI_Win handle, std::unique_ptr<RmaWindow> window);
std::unique_ptr<RmaWindow> take_window(MPI_Win handle);
/// All of them, with their handles.
std::vector<std::unique_ptr<RmaWindow>> take_all_windows();

}  // namespace sluice::mpi_rma
