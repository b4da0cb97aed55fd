// SPDX-License-Identifier: Apache-2.0
// Streams of C in C++.
#pragma once

#include <sluice/c/stream.h>
#include <sluice/export.hpp>
#include <sluice/stream.hpp>

namespace sluice {

/// The stream that a handle of the interface for C names.
/// @throws Error{Code::bad_argument} if there is no such kind; {Code::misuse} for a host stream that is NULL, or that
///   another copy of the library has made
SLUICE_EXPORT Stream stream_of(sluice_stream stream);

}  // namespace sluice
