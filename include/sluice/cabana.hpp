// SPDX-License-Identifier: Apache-2.0
// Cabana's halos and migrations through channels. Link Sluice::cabana.
#pragma once

#include <sluice/cabana/comm_space.hpp>
#include <sluice/cabana/grid.hpp>
#include <sluice/cabana/particles.hpp>
