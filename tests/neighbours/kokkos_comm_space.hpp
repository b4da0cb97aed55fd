// SPDX-License-Identifier: Apache-2.0
// Put before a test or a benchmark of KokkosComm, which then runs with Sluice's communication space. All headers that
// these macros must not reach are included here.
#pragma once

#include <gtest/gtest.h>
#include <KokkosComm/KokkosComm.hpp>
#include <sluice/kokkos_comm.hpp>

#include <Kokkos_Core.hpp>

#include <functional>
#include <span>

namespace KokkosComm {

using SluiceSpace = sluice::kokkos_comm::CommSpace;
template <class Space = SluiceSpace, class Exec = Kokkos::DefaultExecutionSpace>
using SluiceCommunicator = Communicator<Space, Exec>;
template <class Space = SluiceSpace>
using SluiceRequest = Request<Space>;
template <class Space = SluiceSpace>
using SluiceChannel = Channel<Space>;

}  // namespace KokkosComm

#define Communicator SluiceCommunicator
#define Request SluiceRequest
#define Channel SluiceChannel
#define MpiSpace SluiceSpace
#define DefaultCommunicationSpace SluiceSpace
