// SPDX-License-Identifier: Apache-2.0
// Places in the program, for messages.
#pragma once

#include <string>

namespace sluice::base {

/// A return address: the place of a call. Null: unknown.
using Place = const void*;

/// "halo.cpp:41" if the program has debug information and `addr2line` is in the PATH; else "program+0x1234", which
/// addr2line, or a debugger, takes. The first text of a place takes as long as a start of addr2line.
std::string place_text(Place place);

}  // namespace sluice::base
