// SPDX-License-Identifier: Apache-2.0
// Put before a test or a benchmark of Cabana, which then runs with Sluice's communication space where it says, or
// leaves out, its own. All headers that these macros must not reach are included here.
#pragma once

#include <gtest/gtest.h>
#include <Cabana_Core.hpp>
#include <Cabana_Grid.hpp>
#include <sluice/cabana.hpp>

#include <Kokkos_Core.hpp>

namespace Cabana {

using SluiceSpace = sluice::cabana::CommSpace;
template <class MemorySpace, class BuildType = Export>
using SluiceHalo = Halo<MemorySpace, BuildType, SluiceSpace>;
template <class MemorySpace>
using SluiceDistributor = Distributor<MemorySpace, SluiceSpace>;

}  // namespace Cabana

#if defined(NEIGHBOURS_TEST)  // tests name the space
#define Mpi SluiceSpace
#else
#define Halo SluiceHalo
#define Distributor SluiceDistributor
#define createHalo createHalo<sluice::cabana::CommSpace>
#endif
