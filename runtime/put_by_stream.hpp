// SPDX-License-Identifier: Apache-2.0
// For the libraries in dialects/: who carries out the puts of a channel.
#pragma once

#include <sluice/channel.hpp>

namespace sluice::detail {

/// True if the stream of a put carries it out, so that on a host the bytes are copied when it returns. The channel is
/// connected.
SLUICE_EXPORT bool is_put_by_stream(const Sender& sender);

}  // namespace sluice::detail
