// SPDX-License-Identifier: Apache-2.0
// The parts of a rank that channels and plans use.
#pragma once

#include <sluice/types.hpp>

#include <chrono>

#include "backends/transport.hpp"
#include "base/trace.hpp"

namespace sluice::runtime {

class Engine;
class Failures;
class Registry;

/// Limits of waits.
struct Limits {
  Timeout wait = kForever;  ///< for a live peer
  Timeout connect{};        ///< of opening, committing and closing
  Timeout warn{};           ///< between two warnings of a wait that lasts; 0: no warnings
};

struct Services {
  /// Lets every backend try the GPU before channels are used on its streams. Call it without the registry's mutex: it
  /// may take seconds.
  void try_out(device::Driver& driver, int gpu) const;

  Engine& engine;
  Registry& registry;
  Failures& failures;
  const backends::Transports& transports;
  Limits limits;
  /// Which memory of a rank every other rank maps: none, all of it, or what Sluice has allocated.
  backends::Transport::Maps maps = backends::Transport::Maps::nothing;
  /// Which memory of a rank those on its host map.
  backends::Transport::Maps maps_on_host = backends::Transport::Maps::nothing;
  bool checks = false;                            ///< SLUICE_CHECK
  std::chrono::milliseconds check_every{};        ///< period of the engine's check of waits on GPU streams
  Rank rank = 0;                                  ///< in the job
  base::trace::Track track = base::trace::kNone;  ///< the engine's, in the timeline
};

}  // namespace sluice::runtime
