// SPDX-License-Identifier: Apache-2.0
// All of the public interface but the opt-in headers (mpi.hpp, ...).
#pragma once

#include <sluice/batch.hpp>
#include <sluice/channel.hpp>
#include <sluice/collective_window.hpp>
#include <sluice/collectives.hpp>
#include <sluice/context.hpp>
#include <sluice/error.hpp>
#include <sluice/memory.hpp>
#include <sluice/plan.hpp>
#include <sluice/run.hpp>
#include <sluice/segments.hpp>
#include <sluice/stream.hpp>
#include <sluice/trace.hpp>
#include <sluice/types.hpp>
#include <sluice/wait_any.hpp>
#include <sluice/window.hpp>
