// SPDX-License-Identifier: Apache-2.0
// How the ways of starting make and end a context.
#pragma once

#include <sluice/run.hpp>

#include "base/env.hpp"
#include "peers/bootstrap.hpp"

namespace sluice::runtime {

/// The context of all ranks of the job. @throws std::invalid_argument for a backend that does not exist, Error,
/// std::system_error
[[gnu::visibility("default")]] Context open_context(Place place, const base::Env& env, const Options& options);

/// True if ranks of one host move bytes by mapped memory, with the backends of this context; else by a network.
/// @throws Error{Code::misuse} if the handle is empty
bool maps_on_host(const Context& context);

/// The number of a rank of the context in its world, and how many ranks the world has.
/// @throws Error{Code::misuse} if the handle is empty
Rank world_rank(const Context& context, Rank rank);
int world_size(const Context& context);

/// After the body: what is still open counts as lost to the peers.
void end_context(Context& context, bool failed) noexcept;

}  // namespace sluice::runtime
