// SPDX-License-Identifier: Apache-2.0
// Views of Kokkos through channels, in the order of an execution space instance. Link Sluice::kokkos.
#pragma once

#include <sluice/kokkos/channel.hpp>
#include <sluice/kokkos/collectives.hpp>
#include <sluice/kokkos/halo.hpp>
#include <sluice/kokkos/mdspan.hpp>
#include <sluice/kokkos/messages.hpp>
#include <sluice/kokkos/queue.hpp>
#include <sluice/kokkos/trace.hpp>
