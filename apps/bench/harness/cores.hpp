// SPDX-License-Identifier: Apache-2.0
// The cores on which ranks run.
#pragma once

#include <sluice/sluice.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace bench {

using Cores = std::vector<int>;

/// The cores on which the calling thread may run, in their order.
Cores allowed_cores();

/// The core of the rank that is number `place` of `ranks` ranks on its machine, out of those on which it may run. Unset
/// if they are fewer than the ranks; also if a launcher has bound the rank to one of them, which then stays as it is.
std::optional<int> own_core(const Cores& allowed, std::size_t place, std::size_t ranks);

/// Binds the calling thread, and threads that it will start, to a core of its own as `own_core` chooses it. The other
/// ranks of the machine do the same. Without a core of its own the thread stays as it is.
void pin(const sluice::Context& context);

/// The core to which the calling thread is bound; unset if it may run on several.
std::optional<int> bound_core();

/// The time that a cache line needs from the core of one rank to that of the other, in nanoseconds: half of a round
/// trip of one line, to which both ranks write in turn. Both ranks call it. Unset if they are not on one machine, and
/// at the second rank.
std::optional<double> line_time_ns(sluice::Context& context, sluice::Rank peer, bool first);

/// Empty, or what it means that the time of a line has changed so much between the begin of a run and its end.
std::string line_change(double begin_ns, double end_ns);

}  // namespace bench
