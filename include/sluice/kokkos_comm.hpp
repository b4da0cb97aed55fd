// SPDX-License-Identifier: Apache-2.0
// A communication space for KokkosComm: its functions in the order of an execution space instance. Link
// Sluice::kokkos_comm.
#pragma once

#if __has_include(<KokkosComm/mpi/communicator.hpp>)
#include <sluice/kokkos_comm/communicator.hpp>
#else
#include <sluice/kokkos_comm/handle.hpp>
#endif
