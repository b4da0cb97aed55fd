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

/// After the body: what is still open counts as lost to the peers.
void end_context(Context& context, bool failed) noexcept;

}  // namespace sluice::runtime
