// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/error.hpp>

#include <string>

namespace sluice::detail {

/// The text of an error without its kind, which the next one names again.
std::string without_kind(const Error& error);

}  // namespace sluice::detail
