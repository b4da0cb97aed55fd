// SPDX-License-Identifier: Apache-2.0
// Channels without bytes, whose puts are signals.
#pragma once

#include <sluice/channel.hpp>

#include "base/limit.hpp"
#include "rma/group.hpp"
#include "rma/patience.hpp"

namespace sluice::rma {

/// Options of their ends. Over a network, credits come milliseconds later, so there are plenty.
inline ChannelOptions signal_options(const Group& group) { return {.depth = 64, .name = group.name}; }

/// Waits for the next signal. `patrol`: null: ranks may leave, since this one is late. `what`: what has not happened,
/// for people.
void take_signal(Receiver& in, const Group& group, base::Limit& limit, Patrol* patrol, const char* what);

/// Takes the next signal if it is here.
bool take_signal_now(Receiver& in);

}  // namespace sluice::rma
